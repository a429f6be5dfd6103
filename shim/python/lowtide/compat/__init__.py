# SPDX-License-Identifier: Apache-2.0
"""Interfaces of others, on Lowtide."""
