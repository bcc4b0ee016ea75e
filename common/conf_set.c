/* Setting values of a configuration, and telling what is wrong with them.
 *
 * Invariants:
 *  1. A field changes only when the new value is complete and passed its check; a list is replaced
 *     as a whole and keeps the items that passed.
 *  2. Text of the user reaches a message only through conf_show().
 *
 * Life: works on a loader and owns nothing.
 * Failure: mistakes are added to the loader's; an exhausted arena sets no_memory and loading ends
 * with ERR_MEMORY. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

#include <stdio.h>

enum { SHOWN_BYTES = 60 };

/* ---- mistakes ---- */

void conf_show(struct text *t, struct span value)
{
    /* What stands before an "@" or behind a "?" may be a secret, in a URL it mostly is. */
    bool cut = span_find(value, '@') < value.len || span_find(value, '?') < value.len;
    text_addc(t, '"');
    text_add_printable(t, cut ? span_of("(cut)") : value, SHOWN_BYTES);
    text_addc(t, '"');
}

struct text conf_mistake_begin(struct conf_loader *l, struct conf_place place,
                               struct conf_mistake *spare)
{
    struct conf_mistakes *m = l->mistakes;
    struct conf_mistake *item = m->count < CONF_MISTAKES_MAX ? &m->item[m->count] : spare;
    struct text t;

    m->count++;
    text_init(&t, item->text, sizeof item->text);
    text_add(&t, span_make(place.source, strnlen(place.source, 200)));
    if (place.at.line)
        text_addf(&t, ":%u:%u", place.at.line, place.at.column);
    text_adds(&t, ": ");
    return t;
}

void conf_mistake_add(struct conf_loader *l, struct conf_place place, const char *format, ...)
{
    struct conf_mistake spare;
    char sentence[sizeof spare.text];
    struct text t = conf_mistake_begin(l, place, &spare);
    va_list args;

    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    text_adds(&t, sentence);
}

void conf_mistake_value(struct conf_loader *l, struct conf_place place, const struct conf_option *o,
                          struct span value, const char *sentence)
{
    struct conf_mistake spare;
    struct text t = conf_mistake_begin(l, place, &spare);

    text_addf(&t, "%s.%s ", o->section, o->key);
    conf_show(&t, value);
    text_addc(&t, ' ');
    text_adds(&t, sentence);
}

struct conf_place conf_in_file(const struct conf_loader *l, struct toml_place at)
{
    return (struct conf_place){l->name, at};
}

/* ---- setting one value ---- */

const struct conf_option *conf_find_option(struct span section, struct span key)
{
    for (unsigned i = 0; i < CONF_OPTIONS; i++)
        if (span_is(section, conf_options[i].section) && span_is(key, conf_options[i].key))
            return &conf_options[i];
    return NULL;
}

char *conf_keep(struct conf_loader *l, struct span text)
{
    struct span copy = arena_copy(l->arena, text);

    l->no_memory = l->no_memory || !copy.at;
    return (char *)copy.at;
}

/* The position of value in "a|b|c", or -1. */
static int find_choice(const char *values, struct span value)
{
    struct span rest = span_of(values);

    for (int i = 0; rest.len; i++)
        if (span_eq(span_cut(&rest, '|'), value))
            return i;
    return -1;
}

static void mistake_choice(struct conf_loader *l, struct conf_place place,
                           const struct conf_option *o, struct span value)
{
    struct conf_mistake spare;
    struct text t = conf_mistake_begin(l, place, &spare);
    struct span rest = span_of(o->values);
    struct conf_guess guess = {.word = value};

    text_addf(&t, "%s.%s ", o->section, o->key);
    conf_show(&t, value);
    bool several = span_find(rest, '|') < rest.len;
    text_adds(&t, several ? " is none of" : " is not in this version; only");
    while (rest.len) {
        struct span choice = span_cut(&rest, '|');
        text_adds(&t, " \"");
        text_add(&t, choice);
        text_addc(&t, '"');
        conf_guess_at(&guess, choice);
    }
    text_adds(&t, several ? "" : " is");
    conf_guess_add(&t, &guess, "\"", "\"");
}

static const char *const not_a_time = "is no time; write a number and ms, s, m, h or d, as \"60s\"";
static const char *const not_bytes = "is no size; write a number and B, KiB, MiB, GiB, TiB, KB, "
                                     "MB, GB or TB, as \"8MiB\"";
static const char *const not_a_size = "is neither a size nor a percentage, as \"2TiB\" or \"90%\"";

/* Writes a scalar at field from its text form; the end of the sentence if it does not fit. */
static const char *read_scalar(struct conf_loader *l, const struct conf_option *o, struct span text,
                               void *field)
{
    enum err e = OK;
    uint64_t n = 0;

    switch (o->kind) {
    case CONF_TEXT:
        *(char **)field = conf_keep(l, text);
        return NULL;
    case CONF_BOOL:
        *(bool *)field = span_is(text, "true");
        return span_is(text, "true") || span_is(text, "false") ? NULL : "is neither true nor false";
    case CONF_TIME:
        e = conf_read_time_ms(text, field);
        return e == OK ? NULL : e == ERR_TOO_LARGE ? "is too long" : not_a_time;
    case CONF_BYTES:
        e = conf_read_bytes(text, field);
        return e == OK ? NULL : e == ERR_TOO_LARGE ? "is too large" : not_bytes;
    case CONF_SIZE:
        e = conf_read_size(text, field);
        return e == OK ? NULL : e == ERR_TOO_LARGE ? "is too large" : not_a_size;
    case CONF_COUNT:
        if (span_u64(text, &n) == ERR_SYNTAX)
            return "is no whole number";
        if (n < o->least || n > o->most)
            return "is out of limits";
        *(uint32_t *)field = (uint32_t)n;
        return NULL;
    case CONF_ENUM:
        *(uint32_t *)field = (uint32_t)find_choice(o->values, text);
        return *(uint32_t *)field != UINT32_MAX ? NULL : "is no choice";
    case CONF_LIST:
        break;
    }
    panic(__FILE__, __LINE__, "a list is no scalar");
}

void *conf_field(struct config *c, const struct conf_option *o, unsigned upstream)
{
    return (o->of_upstream ? (char *)&c->upstream[upstream] : (char *)c) + o->offset;
}

static bool is_default(struct conf_loader *l, const struct conf_option *o,
                       const union conf_any *value)
{
    union conf_any standard = {0};

    must(!read_scalar(l, o, span_of(o->standard), &standard));
    switch (o->kind) {
    case CONF_TEXT:
        return l->no_memory || strcmp(standard.text, value->text) == 0;
    case CONF_BOOL:
        return standard.flag == value->flag;
    case CONF_TIME:
    case CONF_BYTES:
        return standard.number == value->number;
    default:
        return standard.choice == value->choice;
    }
}

/* A scalar of any layer, from its text. */
static void set_scalar(struct conf_loader *l, const struct conf_option *o, struct conf_place place,
                       struct span text, void *field)
{
    union conf_any value = {0};
    const char *why = read_scalar(l, o, text, &value);

    if (o->kind == CONF_ENUM && why) {
        mistake_choice(l, place, o, text);
        return;
    }
    if (o->kind == CONF_COUNT && why) {
        char sentence[100];
        snprintf(sentence, sizeof sentence, "%s; %u to %u are allowed", why, o->least, o->most);
        conf_mistake_value(l, place, o, text, sentence);
        return;
    }
    if (!why)
        why = conf_check(o, text);
    if (why) {
        conf_mistake_value(l, place, o, text, why);
        return;
    }
    if ((o->flags & LATER) && !is_default(l, o, &value)) {
        conf_mistake_add(l, place, "%s.%s is not in this version; remove it", o->section, o->key);
        return;
    }
    static const size_t sizes[] = {
        [CONF_TEXT] = sizeof value.text,    [CONF_BOOL] = sizeof value.flag,
        [CONF_TIME] = sizeof value.number,  [CONF_BYTES] = sizeof value.number,
        [CONF_SIZE] = sizeof value.size,    [CONF_COUNT] = sizeof value.choice,
        [CONF_ENUM] = sizeof value.choice,
    };
    memcpy(field, &value, sizes[o->kind]);
    if (o == &conf_options[CONF_AT_cache_size] && l->sizes_given) {
        l->size_at = place;
        l->size_text = conf_keep(l, text);
    }
}

bool conf_set_item(struct conf_loader *l, struct conf_list *list, const struct conf_option *o,
                   struct conf_place place, struct span item)
{
    const char *why = conf_check(o, item);

    if (why) {
        conf_mistake_value(l, place, o, item, why);
        return false;
    }
    for (unsigned i = 0; i < list->count; i++) {
        if (!l->no_memory && span_is(item, list->item[i])) {
            conf_mistake_value(l, place, o, item, "is given twice");
            return false;
        }
    }
    if (list->count == CONF_LIST_MAX) {
        conf_mistake_value(l, place, o, item, "is more than the 64 values that fit");
        return false;
    }
    list->item[list->count++] = conf_keep(l, item);
    return true;
}

void conf_set_text(struct conf_loader *l, const struct conf_option *o, struct conf_place place,
                   struct span text)
{
    if (o->kind != CONF_LIST) {
        set_scalar(l, o, place, text, conf_field(l->config, o, 0));
        return;
    }
    struct conf_list *list = conf_field(l->config, o, 0);
    list->count = 0;
    while (text.len) {
        struct span item = span_trim(span_cut(&text, ','));
        if (item.len)
            conf_set_item(l, list, o, place, item);
    }
}

static const char *wanted(const struct conf_option *o)
{
    switch (o->kind) {
    case CONF_LIST:
        return "an array of strings, as [\"a\", \"b\"]";
    case CONF_BOOL:
        return "true or false, without quotes";
    case CONF_COUNT:
        return "a whole number, without quotes";
    case CONF_TIME:
        return "a time in quotes, as \"60s\"";
    case CONF_BYTES:
        return "a size in quotes, as \"8MiB\"";
    case CONF_SIZE:
        return "a size or percentage in quotes, as \"90%\"";
    default:
        return "a string in quotes";
    }
}

bool conf_fits(enum conf_kind kind, enum toml_kind given)
{
    switch (given) {
    case TOML_LIST:
        return kind == CONF_LIST;
    case TOML_BOOL:
        return kind == CONF_BOOL;
    case TOML_INTEGER:
        return kind == CONF_COUNT || kind == CONF_BYTES || kind == CONF_SIZE || kind == CONF_TIME;
    case TOML_STRING:
        return kind != CONF_LIST && kind != CONF_BOOL && kind != CONF_COUNT;
    }
    return false;
}

void conf_set_toml(struct conf_loader *l, const struct conf_option *o,
                          const struct toml_value *value, void *field)
{
    char number[32];
    struct conf_place place = conf_in_file(l, value->place);

    if (!conf_fits(o->kind, value->kind)) {
        conf_mistake_add(l, place, "%s.%s must be %s", o->section, o->key, wanted(o));
        return;
    }
    if (value->kind == TOML_LIST) {
        *(struct conf_list *)field = (struct conf_list){.count = 0};
        for (unsigned i = 0; i < value->count; i++)
            conf_set_item(l, field, o, conf_in_file(l, value->item_place[i]), value->item[i]);
        return;
    }
    struct span text = value->text;
    if (value->kind == TOML_BOOL)
        text = span_of(value->flag ? "true" : "false");
    if (value->kind == TOML_INTEGER) {
        snprintf(number, sizeof number, "%lld", (long long)value->integer);
        text = span_of(number);
    }
    set_scalar(l, o, place, text, field);
}
