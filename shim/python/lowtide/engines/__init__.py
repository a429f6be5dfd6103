# SPDX-License-Identifier: Apache-2.0
"""Inference engines under Lowtide, a package each. An engine's own plug-in mechanism calls in here; nothing of it is edited."""
