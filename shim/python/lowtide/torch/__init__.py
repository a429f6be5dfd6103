# SPDX-License-Identifier: Apache-2.0
"""What needs PyTorch and nothing else: no library of Lowtide's, and no virtual memory of the device's."""
