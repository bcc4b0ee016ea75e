/* Fuzzes what those who hand out credentials answer, by the first byte: JSON of its three forms,
 * XML of STS, times, command lines. What is accepted can be sent; words show nothing of the
 * answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "xml.h"

#include "tests/fuzz/fuzz.h"

static void check(enum err e, const struct creds *c, const struct text *why, bool must_end)
{
    demand(e == OK || e == ERR_SYNTAX || e == ERR_MEMORY);
    demand((e == ERR_SYNTAX) == (why->len > 0));
    for (size_t i = 0; i < why->len; i++)
        demand(why->at[i] >= ' ' && why->at[i] <= '~');
    if (e != OK)
        return;
    demand(c->access_key[0] && c->secret.len > 0 && c->secret.len <= SECRET_BYTES_MAX);
    demand(!must_end || c->expire_s > 0);
    for (const char *at = c->access_key; *at; at++)
        demand(*at > ' ' && *at <= '~' && *at != ',');
    for (const char *at = c->token; *at; at++)
        demand(*at > ' ' && *at <= '~');
}

static void read_answer(unsigned form, struct span bytes)
{
    static struct creds c;
    char memory[200], code[CREDS_CODE_BYTES];
    struct text why;
    text_init(&why, memory, sizeof(memory));
    if (form < 3)
        check(creds_answer_json((enum creds_form)form, bytes, &c, &why), &c, &why,
              form != CREDS_OF_PROCESS);
    else
        check(creds_answer_sts(form == 3 ? "AssumeRole" : "AssumeRoleWithWebIdentity", bytes, &c,
                               &why),
              &c, &why, true);
    demand(!why.over);
    creds_answer_code(bytes, code);
    demand(strlen(code) < sizeof(code));
    for (const char *at = code; *at; at++)
        demand((*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z') ||
               (*at >= 'a' && *at <= 'z') || *at == '.');
}

static void split(struct span bytes)
{
    enum { WORDS = 8 };
    size_t room = bytes.len + 1;
    char *command = malloc(room), *memory = malloc(room), *argv[WORDS];
    demand(command && memory);
    if (bytes.len > 0)
        memcpy(command, bytes.at, bytes.len);
    command[bytes.len] = '\0';
    if (creds_split(command, memory, argv, WORDS)) {
        size_t sum = 0, count = 0;
        for (; argv[count]; count++)
            sum += strlen(argv[count]) + 1;
        demand(count > 0 && count < WORDS && sum <= room);
    }
    free(memory);
    free(command);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    must(xml_setup() == OK);
    char *copy = exact_copy(data + 1, size - 1);
    struct span bytes = span_make(copy, size - 1);
    if (data[0] % 7 < 5)
        read_answer(data[0] % 7, bytes);
    else if (data[0] % 7 == 5)
        (void)creds_time(bytes);
    else
        split(bytes);
    exact_give(copy);
    return 0;
}
