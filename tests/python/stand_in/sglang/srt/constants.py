# SPDX-License-Identifier: Apache-2.0
GPU_MEMORY_ALL_TYPES = ["kv_cache", "weights", "cuda_graph"]
