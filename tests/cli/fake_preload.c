/* SPDX-License-Identifier: Apache-2.0 */
int lowtide_fake_preload_is_here(void) { return 1; }
