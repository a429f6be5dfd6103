# SPDX-License-Identifier: Apache-2.0
"""What Lowtide tells inference engines through their own plug-in systems. Nothing of an engine is imported before it asks."""
