/* Runs a fuzz target over kept inputs without a fuzzer: for builds that libFuzzer has no place in,
 * such as the one that counts coverage. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

enum { INPUT_BYTES_MAX = 4 * MIB };

int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static void replay(const char *path)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    demand(f != NULL);
    size_t len = fread(bytes, 1, sizeof(bytes), f);
    demand(feof(f) && fclose(f) == 0);
    char *exact = exact_copy(bytes, len);
    (void)LLVMFuzzerTestOneInput((const uint8_t *)exact, len);
    exact_give(exact);
}

int main(int argc, char **argv)
{
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    return argc > 1 ? 0 : 1;
}
