/* What those who hand out credentials answer: JSON of processes, containers and instance metadata,
 * XML of STS; and the command line of a process. Pure.
 *
 * Invariants:
 *  1. No byte of an answer gets into words for an operator but an error's code, of letters, digits
 *     and dots: whatever else it says may be a secret.
 *  2. What is returned can be sent: creds_set() has looked at it, and it names a time where its
 *     form must name one.
 *  3. What jansson allocates is wiped when it is freed. (libxml2 frees its buffers unwiped; the
 *     process shows its memory to nobody.)
 * Life: values in, values out.
 * Failure: ERR_SYNTAX and a sentence; ERR_MEMORY. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

#include <ctype.h>
#include <jansson.h>
#include <time.h>

#include "xml.h"

enum { FIELD_BYTES_MAX = CREDS_TOKEN_BYTES_MAX + 1 };

/* ---- times ---- */
static bool two_digits(struct span *text, unsigned *out)
{
    if (text->len < 2 || !isdigit((unsigned char)text->at[0]) ||
        !isdigit((unsigned char)text->at[1]))
        return false;
    *out = (unsigned)(text->at[0] - '0') * 10 + (unsigned)(text->at[1] - '0');
    *text = span_from(*text, 2);
    return true;
}

static bool take(struct span *text, const char *any)
{
    if (text->len == 0 || !strchr(any, text->at[0]))
        return false;
    *text = span_from(*text, 1);
    return true;
}

/* "", "Z", "+hh:mm" or "-hhmm": how far ahead of UTC. */
static bool read_offset(struct span text, int64_t *out_s)
{
    unsigned hours, minutes;
    *out_s = 0;
    if (span_is_nocase(text, "Z"))
        return true;
    bool behind = text.len > 0 && text.at[0] == '-';
    if (!take(&text, "+-") || !two_digits(&text, &hours))
        return false;
    (void)take(&text, ":");
    if (!two_digits(&text, &minutes) || text.len > 0 || hours > 23 || minutes > 59)
        return false;
    *out_s = (behind ? -1 : 1) * (int64_t)(hours * 3600 + minutes * 60);
    return true;
}

uint64_t creds_time(struct span text)
{
    struct tm at = {0};
    unsigned century, year, month, day, hour, minute, second;
    int64_t offset_s;
    bool good = two_digits(&text, &century) && two_digits(&text, &year) && take(&text, "-") &&
                two_digits(&text, &month) && take(&text, "-") && two_digits(&text, &day) &&
                take(&text, "Tt ") && two_digits(&text, &hour) && take(&text, ":") &&
                two_digits(&text, &minute) && take(&text, ":") && two_digits(&text, &second);
    if (!good || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
        second > 60)
        return 0;
    if (take(&text, ".")) {
        while (text.len > 0 && isdigit((unsigned char)text.at[0]))
            text = span_from(text, 1);
    }
    if (!read_offset(text, &offset_s))
        return 0;
    at.tm_year = (int)(century * 100 + year) - 1900;
    at.tm_mon = (int)month - 1;
    at.tm_mday = (int)day;
    at.tm_hour = (int)hour;
    at.tm_min = (int)minute;
    at.tm_sec = (int)second;
    int64_t s = (int64_t)timegm(&at) - offset_s;
    return s > 0 ? (uint64_t)s : 0;
}

/* ---- what all forms have ---- */
struct fields {
    struct span access, secret, token, expiration;
};

static enum err refuse(struct text *why, const char *what)
{
    text_adds(why, what);
    return ERR_SYNTAX;
}

static enum err keep(const struct fields *f, bool must_end, struct creds *out, struct text *why)
{
    struct creds made;
    const char *mistake = creds_set(&made, f->access, f->secret, f->token);
    if (!mistake && f->access.len == 0)
        mistake = "there is no access key";
    if (!mistake && f->expiration.len > 0) {
        made.expire_s = creds_time(f->expiration);
        if (made.expire_s == 0)
            mistake = "its expiration is no time";
    } else if (!mistake && must_end) {
        mistake = "it does not say when they expire";
    }
    if (!mistake)
        *out = made;
    creds_wipe(&made);
    return mistake ? refuse(why, mistake) : OK;
}

/* ---- JSON ---- */
static json_t *read_json(struct span bytes, struct text *why)
{
    json_error_t error;
    json_set_alloc_funcs(mem_plain, mem_plain_give);
    if (bytes.len > CREDS_ANSWER_BYTES_MAX) {
        text_adds(why, "it is larger than 64 KiB");
        return NULL;
    }
    json_t *all = json_loadb(bytes.at ? bytes.at : "", bytes.len, 0, &error);
    if (all && !json_is_object(all)) {
        json_decref(all);
        all = NULL;
    }
    if (!all)
        text_adds(why, "it is not a JSON object");
    return all;
}

static struct span text_of(const json_t *all, const char *name)
{
    const json_t *value = json_object_get(all, name);
    return json_is_string(value) ? span_make(json_string_value(value), json_string_length(value))
                                 : (struct span){NULL, 0};
}

enum err creds_answer_json(enum creds_form form, struct span bytes, struct creds *out,
                           struct text *why)
{
    json_t *all = read_json(bytes, why);
    if (!all)
        return ERR_SYNTAX;
    struct fields f = {text_of(all, "AccessKeyId"), text_of(all, "SecretAccessKey"),
                       text_of(all, form == CREDS_OF_PROCESS ? "SessionToken" : "Token"),
                       text_of(all, "Expiration")};
    const json_t *version = json_object_get(all, "Version");
    const json_t *ends = json_object_get(all, "Expiration");
    enum err e = OK;
    if (form == CREDS_OF_PROCESS && (!json_is_integer(version) || json_integer_value(version) != 1))
        e = refuse(why, "its \"Version\" is not 1");
    else if (form == CREDS_OF_INSTANCE && !span_is(text_of(all, "Code"), "Success"))
        e = refuse(why, "its \"Code\" is not \"Success\"");
    else if (ends && !json_is_null(ends) && f.expiration.len == 0)
        e = refuse(why, "its expiration is no time");
    if (e == OK)
        e = keep(&f, form != CREDS_OF_PROCESS, out, why);
    json_decref(all);
    return e;
}

/* ---- XML ---- */
enum field { FIELD_ACCESS, FIELD_SECRET, FIELD_TOKEN, FIELD_EXPIRATION, FIELD_COUNT };
struct sts {
    const char *action;
    struct text value[FIELD_COUNT];
    char memory[FIELD_COUNT][FIELD_BYTES_MAX + 1];
};

/* "ActionResponse/ActionResult/Credentials/NAME" */
static bool is_field(const struct sts *s, struct span path, const char *name)
{
    char memory[160];
    struct text want;
    text_init(&want, memory, sizeof(memory));
    text_addf(&want, "%sResponse/%sResult/Credentials/%s", s->action, s->action, name);
    return span_eq(path, text_span(&want));
}

static struct span trim(struct span text)
{
    while (text.len > 0 && isspace((unsigned char)text.at[0]))
        text = span_from(text, 1);
    while (text.len > 0 && isspace((unsigned char)text.at[text.len - 1]))
        text.len--;
    return text;
}

static bool take_leaf(void *user, struct span path, struct span text)
{
    static const char *const name[FIELD_COUNT] = {"AccessKeyId", "SecretAccessKey", "SessionToken",
                                                  "Expiration"};
    struct sts *s = user;
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        if (!is_field(s, path, name[i]))
            continue;
        if (s->value[i].len > 0)
            return false;            /* told twice: which is meant? */
        text_add(&s->value[i], trim(text));
        return !s->value[i].over;
    }
    return true;
}

static enum err read_xml(struct span bytes, xml_leaf *leaf, void *user)
{
    struct xml_reader *r = xml_open(CREDS_ANSWER_BYTES_MAX, leaf, user);
    if (!r)
        return ERR_MEMORY;
    enum err e = xml_feed(r, bytes);
    if (e == OK)
        e = xml_end(r);
    xml_close(r);
    return e;
}

enum err creds_answer_sts(const char *action, struct span bytes, struct creds *out,
                          struct text *why)
{
    struct sts *s = mem_take(sizeof(*s));
    if (!s)
        return ERR_MEMORY;
    s->action = action;
    for (unsigned i = 0; i < FIELD_COUNT; i++)
        text_init(&s->value[i], s->memory[i], sizeof(s->memory[i]));
    enum err e = read_xml(bytes, take_leaf, s);
    if (e == OK) {
        const struct fields f = {text_span(&s->value[FIELD_ACCESS]),
                                 text_span(&s->value[FIELD_SECRET]),
                                 text_span(&s->value[FIELD_TOKEN]),
                                 text_span(&s->value[FIELD_EXPIRATION])};
        e = keep(&f, true, out, why);
    } else if (e != ERR_MEMORY) {
        e = refuse(why, "it is not XML of STS within 64 KiB");
    }
    mem_give_secret(s, sizeof(*s));
    return e;
}

/* ---- errors ---- */
static void copy_code(struct span code, char out[CREDS_CODE_BYTES])
{
    code = trim(code);
    out[0] = '\0';
    if (code.len == 0 || code.len >= CREDS_CODE_BYTES)
        return;
    for (size_t i = 0; i < code.len; i++)
        if (!isalnum((unsigned char)code.at[i]) && code.at[i] != '.')
            return;
    memcpy(out, code.at, code.len);
    out[code.len] = '\0';
}

static bool take_code(void *user, struct span path, struct span text)
{
    if (span_is(path, "ErrorResponse/Error/Code"))
        copy_code(text, user);
    return true;
}

void creds_answer_code(struct span bytes, char out[CREDS_CODE_BYTES])
{
    char memory[128];
    struct text nobody;
    out[0] = '\0';
    if (bytes.len == 0 || bytes.len > CREDS_ANSWER_BYTES_MAX)
        return;
    if (bytes.at[0] == '<') {
        if (read_xml(bytes, take_code, out) != OK)
            out[0] = '\0';
        return;
    }
    text_init(&nobody, memory, sizeof(memory));
    json_t *all = read_json(bytes, &nobody);
    struct span code = all ? text_of(all, "code") : (struct span){NULL, 0};
    copy_code(code.len > 0 || !all ? code : text_of(all, "Code"), out);
    json_decref(all);
}

/* ---- a command line ---- */
struct split {
    const char *at;                  /* of the command */
    char *to;
    char quote;                      /* '\'', '"', or 0 */
};

/* One character of a word; false: the word has ended. */
static bool split_one(struct split *s)
{
    char c = *s->at;
    if (c == '\0' || (!s->quote && isspace((unsigned char)c)))
        return false;
    s->at++;
    if (s->quote ? c == s->quote : c == '\'' || c == '"') {
        s->quote = s->quote ? '\0' : c;
        return true;
    }
    /* Within "..." a backslash means itself, but before " and itself. */
    if (c == '\\' && s->quote != '\'' && *s->at && (!s->quote || strchr("\"\\", *s->at)))
        c = *s->at++;
    *s->to++ = c;
    return true;
}

bool creds_split(const char *command, char *memory, char **argv, unsigned max)
{
    struct split s = {command, memory, '\0'};
    unsigned count = 0;
    for (;;) {
        while (isspace((unsigned char)*s.at))
            s.at++;
        if (*s.at == '\0')
            break;
        if (count + 1 >= max)
            return false;
        argv[count++] = s.to;
        while (split_one(&s))
            ;
        *s.to++ = '\0';
    }
    argv[count] = NULL;
    return count > 0 && !s.quote;
}
