/* Any bytes as a configuration file: no crash, no leak; what is accepted prints as a file that
 * reads back to the same text, and as JSON; what is refused has a mistake that is one printable
 * line. What its schedules set can be applied at any time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>

#include "conf.h"
#include "server/admin/admin.h"

#include "tests/fuzz/fuzz.h"

static struct conf_mistakes mistakes;
static char printed[4 * MIB], again[4 * MIB];

static void print(const struct config *c, char *memory, struct text *t)
{
    text_init(t, memory, sizeof printed);
    conf_print(c, t);
    demand(!t->over);
}

static void check_mistakes(void)
{
    demand(mistakes.count > 0);
    for (unsigned i = 0; i < mistakes.count && i < CONF_MISTAKES_MAX; i++) {
        struct span line = span_of(mistakes.item[i].text);
        demand(span_starts(line, span_of("f:")));
        for (size_t at = 0, len; at < line.len; at += len) {
            len = span_utf8(span_from(line, at));
            demand(len > 0 && (unsigned char)line.at[at] >= ' ' && line.at[at] != 0x7F);
        }
    }
}

/* As /v1/config shows it. */
static void check_json(struct span toml)
{
    static char memory[8 * MIB];
    struct text t;
    text_init(&t, memory, sizeof memory);
    status_config(toml, &t);
    demand(!t.over);
    json_t *shown = json_loadb(t.at, t.len, JSON_REJECT_DUPLICATES, NULL);
    demand(json_is_object(shown));
    json_decref(shown);
}

/* Whatever is in force, it lies over the rest and takes nothing of it along. */
static void check_schedules(const struct config *c)
{
    for (unsigned minute = 0; minute < CONF_WEEK_MINUTES; minute += 1009) {
        struct config *then = NULL;
        demand(conf_next_change(c, minute) < CONF_WEEK_MINUTES);
        demand(conf_scheduled(c, conf_in_force(c, minute), &then) == OK);
        demand(then->bucket_count == c->bucket_count && then->cache_dirs.count > 0);
        if (then->in_force == 0)
            demand(memcmp(then, c, sizeof *c) == 0);
        conf_give(then);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *c = NULL, *read_back = NULL;
    struct text first, second;

    enum err e = conf_parse(span_make(data, size), "f", NULL, NULL, 0, &c, &mistakes);
    if (e != OK) {
        demand(!c && (e == ERR_CONFIG || e == ERR_MEMORY));
        if (e == ERR_CONFIG)
            check_mistakes();
        return 0;
    }
    demand(mistakes.count == 0 && c->bucket_count >= 1);
    demand(conf_bucket(c, span_of("bucket"), span_of("key")) != NULL);
    print(c, printed, &first);
    check_json(text_span(&first));
    demand(conf_parse(text_span(&first), "f", NULL, NULL, 0, &read_back, &mistakes) == OK);
    print(read_back, again, &second);
    demand(span_eq(text_span(&first), text_span(&second)));
    conf_give(read_back);
    check_schedules(c);
    conf_give(c);
    return 0;
}
