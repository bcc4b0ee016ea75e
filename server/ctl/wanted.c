/* What a prewarm is given beside a prefix: shard patterns (--wds) and lists of keys (--manifest),
 * as lines of JSON for the server.
 *
 * A manifest is a key on each line; or a JSON object on each line, of which "key", "etag" and
 * "size" count; or the index.json of a MosaicML data set. What begins with s3:// names its bucket,
 * all else stands below the prefix of the command line.
 *
 * Invariants:
 *  1. All of it is read before a server is asked: a line that is wrong is told as file:line:column,
 *     and nothing is begun.
 *  2. One list is of one bucket, and every key begins with the prefix that is told to the server:
 *     that of the command line, or what all keys have in common.
 *
 * Life: wanted_read(), wanted_free(). Failure: an exit code, the reason was told. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "http.h"
#include "server/ctl/ctl.h"

enum {
    KEY_MAX = KEY_BYTES_MAX, ETAG_MAX = 128,
    KEYS_MOST = 500 * 1000,
    FILE_BYTES_MAX = 256 * MIB,
    READ_STEP = 64 * KIB,
};

struct place {                       /* where in the input the key stands */
    const char *file;
    size_t line, column;
};

static int fail_at(const struct place *p, const char *what)
{
    char memory[400];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_add_printable(&t, span_of(p->file), 200);
    text_addf(&t, ":%zu:%zu: %s", p->line, p->column, what);
    fprintf(stderr, "%s; nothing was begun\n", memory);
    return CTL_USAGE;
}

/* ---- keys ---- */
static bool grow(struct wanted *l, size_t len)
{
    if (l->len + len <= l->room)
        return true;
    size_t room = 2 * l->room + len + READ_STEP;
    char *grown = mem_grow(l->bytes, room);
    if (!grown)
        return false;
    l->bytes = grown;
    l->room = room;
    return true;
}

static void share_prefix(struct wanted *l, struct span key)
{
    size_t n = 0;

    if (l->count == 0)
        memcpy(l->prefix, key.at, key.len);
    while (n < key.len && (l->count == 0 || (n < l->prefix_len && l->prefix[n] == key.at[n])))
        n++;
    l->prefix_len = n;
}

static int fail_size(const struct place *p, json_t *line)
{
    json_decref(line);
    return fail_at(p, "the size is negative");
}

/* One line of JSON behind the others. */
static int write_line(struct wanted *l, const struct place *p, struct span key, const json_t *more)
{
    json_t *line = json_object();
    bool good = json_object_set_new(line, "key", json_stringn(key.at, key.len)) == 0;
    const char *etag = value_text(more, "etag");

    if (json_integer_value(json_object_get(more, "size")) < 0)
        return fail_size(p, line);
    if (etag[0])
        good = json_object_set_new(line, "etag", json_string(etag)) == 0 && good;
    if (json_is_integer(json_object_get(more, "size")))
        good = json_object_set(line, "size", json_object_get(more, "size")) == 0 && good;
    size_t len = good ? json_dumpb(line, NULL, 0, JSON_COMPACT) : 0;
    bool fits = len > 0 && grow(l, len + 1);
    if (fits) {
        json_dumpb(line, l->bytes + l->len, len, JSON_COMPACT);
        l->bytes[l->len + len] = '\n';
        l->len += len + 1;
    }
    json_decref(line);
    return fits ? CTL_DONE
                : fail_at(p, good ? "no memory for so many keys" : "the key is no UTF-8");
}

/* Of the bucket that all are of. */
static int add_whole(struct wanted *l, const struct place *p, struct span key, const json_t *more)
{
    if (key.len == 0 || key.len > KEY_MAX || memchr(key.at, '\0', key.len))
        return fail_at(p, key.len == 0 ? "no key stands here"
                          : key.len > KEY_MAX ? "longer than the 1024 bytes of a key"
                                              : "a key has no NUL");
    if (l->count == KEYS_MOST)
        return fail_at(p, "more than 500 000 keys: make several jobs, or take a prefix and globs");
    if (strlen(value_text(more, "etag")) > ETAG_MAX)
        return fail_at(p, "the ETag is too long");
    if (l->fixed && !span_starts(key, span_make(l->prefix, l->prefix_len)))
        return fail_at(p, "the key is not below the prefix of the command line");
    if (!l->fixed)
        share_prefix(l, key);
    int code = write_line(l, p, key, more);
    l->count += code == CTL_DONE;
    return code;
}

static bool is_bucket(struct wanted *l, struct span bucket)
{
    if (bucket.len == 0 || bucket.len > BUCKET_BYTES_MAX)
        return false;
    if (l->bucket_len == 0) {
        memcpy(l->bucket, bucket.at, bucket.len);
        l->bucket_len = bucket.len;
    }
    return span_eq(bucket, span_make(l->bucket, l->bucket_len));
}

/* As it is written: "s3://bucket/key", or a name below base, a folder of the bucket. more: an
 * object that may say ETag and size, or NULL. */
static int add(struct wanted *l, const struct place *p, struct span base, struct span name,
               const json_t *more)
{
    char key[KEY_MAX + 1];
    struct text t;

    if (span_starts(name, span_of("s3://"))) {
        struct span rest = span_from(name, 5), bucket = span_cut(&rest, '/');
        if (!is_bucket(l, bucket))
            return fail_at(p, bucket.len == 0 || bucket.len > BUCKET_BYTES_MAX
                                  ? "no bucket is named: write s3://BUCKET/KEY"
                                  : "of another bucket: one job has one");
        return add_whole(l, p, rest, more);
    }
    if (l->bucket_len == 0)
        return fail_at(p,
                       "below which prefix? Name it, as s3://BUCKET/PREFIX before the options, or "
                       "write s3://BUCKET/KEY");
    if (name.len == 0 || base.len + 1 + name.len > KEY_MAX)
        return add_whole(l, p, name.len == 0 ? name : span_make(name.at, KEY_MAX + 1), more);
    text_init(&t, key, sizeof key);
    text_add(&t, base);
    if (base.len > 0 && base.at[base.len - 1] != '/')
        text_addc(&t, '/');
    text_add(&t, name);
    return add_whole(l, p, text_span(&t), more);
}

static struct span base_of(const struct wanted *l)
{
    return l->fixed ? span_make(l->prefix, l->prefix_len) : span_of("");
}

/* ---- patterns ---- */
enum { GROUPS_MAX = 16, DIGITS_MAX = 18 };
struct group {
    size_t from, to;                 /* of the pattern: "{" and behind "}" */
    bool range;
    int64_t first, step;
    unsigned width;
    uint64_t count, at;              /* alternatives; the one whose turn it is */
};
struct pattern {
    struct span text;
    struct group group[GROUPS_MAX];
    unsigned count;
};

/* Digits only. */
static bool read_number(struct span word, int64_t *out)
{
    uint64_t n;
    bool good = word.len > 0 && word.len <= DIGITS_MAX && span_u64(word, &n) == OK;

    *out = good ? (int64_t)n : 0;
    return good;
}

static size_t find_dots(struct span a)
{
    for (size_t i = 0; i + 1 < a.len; i++)
        if (a.at[i] == '.' && a.at[i + 1] == '.')
            return i;
    return a.len;
}

/* "000..999", "0..10..2": false, it is no range. */
static bool read_range(struct span inside, struct group *g)
{
    size_t dots = find_dots(inside);
    struct span from = span_make(inside.at, dots), to = span_from(inside, dots + 2);
    size_t more = find_dots(to);
    struct span by = span_from(to, more + 2);
    int64_t last, step = 1;

    to.len = more;
    if (dots == inside.len || !read_number(from, &g->first) || !read_number(to, &last) ||
        (by.len > 0 && (!read_number(by, &step) || step == 0)))
        return false;
    uint64_t far = (uint64_t)(last > g->first ? last - g->first : g->first - last);
    bool padded = (from.at[0] == '0' && from.len > 1) || (to.at[0] == '0' && to.len > 1);
    g->range = true;
    g->width = padded ? (unsigned)max_u64(from.len, to.len) : 0;
    g->count = far / (uint64_t)step + 1;
    g->step = last >= g->first ? step : -step;
    return true;
}

static size_t skip_escaped(struct span text, size_t i)
{
    return i + (text.at[i] == '\\' && i + 1 < text.len);
}

/* The group that begins there; its exit code. */
static int read_group(struct pattern *p, struct place *at, size_t *i)
{
    size_t end = *i + 1;

    at->column = *i + 1;
    for (; end < p->text.len && p->text.at[end] != '}'; end = skip_escaped(p->text, end) + 1)
        if (p->text.at[end] == '{')
            return fail_at(at, "a brace within braces: write the choices side by side");
    if (end >= p->text.len)
        return fail_at(at, "this brace is not closed");
    if (p->count == GROUPS_MAX)
        return fail_at(at, "more than 16 pairs of braces");
    struct group *g = &p->group[p->count++];
    struct span inside = span_make(p->text.at + *i + 1, end - *i - 1);
    *g = (struct group){.from = *i, .to = end + 1, .count = 1};
    if (!read_range(inside, g)) {
        for (size_t k = 0; k < inside.len; k = skip_escaped(inside, k) + 1)
            g->count += inside.at[k] == ',';
        if (g->count == 1)
            return fail_at(at, "neither a range, as {000..999}, nor a choice, as {a,b}");
    }
    *i = end;
    return CTL_DONE;
}

static int read_pattern(struct pattern *p, struct place *at)
{
    uint64_t all = 1;

    for (size_t i = 0; i < p->text.len; i = skip_escaped(p->text, i) + 1) {
        int code = CTL_DONE;
        at->column = i + 1;
        if (p->text.at[i] == '}')
            code = fail_at(at, "no brace was opened for this one");
        else if (p->text.at[i] == '{')
            code = read_group(p, at, &i);
        if (code != CTL_DONE)
            return code;
    }
    for (unsigned i = 0; i < p->count; i++) {
        at->column = p->group[i].from + 1;
        if (p->group[i].count > KEYS_MOST || all * p->group[i].count > KEYS_MOST)
            return fail_at(at, "more than 500 000 keys: take a prefix and globs");
        all *= p->group[i].count;
    }
    return CTL_DONE;
}

static void add_plain(struct text *t, struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        i = skip_escaped(text, i);
        text_addc(t, text.at[i]);
    }
}

static void add_choice(struct text *t, const struct pattern *p, const struct group *g)
{
    size_t from = g->from + 1, to = from, end = g->to - 1;

    if (g->range) {
        long long n = (long long)(g->first + g->step * (int64_t)g->at);
        text_addf(t, "%0*lld", (int)g->width, n);
        return;
    }
    for (uint64_t left = g->at;; to = skip_escaped(p->text, to) + 1) {
        if (to < end && p->text.at[to] != ',')
            continue;
        if (left-- == 0)
            break;
        from = to + 1;
    }
    add_plain(t, span_make(p->text.at + from, to - from));
}

/* The next combination, the last group first; false: that was all. */
static bool next_choice(struct pattern *p)
{
    for (unsigned i = p->count; i-- > 0;) {
        if (++p->group[i].at < p->group[i].count)
            return true;
        p->group[i].at = 0;
    }
    return false;
}

static int add_pattern(struct wanted *l, const char *text)
{
    struct pattern p = {.text = span_of(text)};
    struct place at = {.file = "--wds", .line = 1, .column = 1};
    int code = read_pattern(&p, &at);

    at.column = 1;
    while (code == CTL_DONE) {
        char name[2 * KEY_MAX];
        struct text t;
        size_t from = 0;
        text_init(&t, name, sizeof name);
        for (unsigned i = 0; i < p.count; i++) {
            add_plain(&t, span_make(p.text.at + from, p.group[i].from - from));
            add_choice(&t, &p, &p.group[i]);
            from = p.group[i].to;
        }
        add_plain(&t, span_from(p.text, from));
        if (t.over)
            return fail_at(&at, "longer than the 1024 bytes of a key");
        code = add(l, &at, base_of(l), text_span(&t), NULL);
        if (!next_choice(&p))
            break;
    }
    return code;
}

/* ---- manifests ---- */
static int add_lines(struct wanted *l, const char *file, struct span text, bool json)
{
    struct place at = {.file = file, .line = 1, .column = 1};
    int code = CTL_DONE;

    for (; text.len > 0 && code == CTL_DONE; at.line++) {
        struct span line = span_cut(&text, '\n');
        json_error_t error;
        at.column = 1;
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        if (span_trim(line).len == 0)
            continue;
        if (!json) {
            code = add(l, &at, base_of(l), line, NULL);
            continue;
        }
        json_t *value = json_loadb(line.at, line.len, JSON_REJECT_DUPLICATES, &error);
        const json_t *key = json_object_get(value, "key");
        at.column = value || error.column < 1 ? 1 : (size_t)error.column;
        if (!value)
            code = fail_at(&at, error.text);
        else if (!json_is_string(key))
            code = fail_at(&at, "no \"key\" is named in this object");
        else
            code = add(l, &at, base_of(l), span_make(json_string_value(key),
                                                     json_string_length(key)), value);
        json_decref(value);
    }
    return code;
}

/* What a reader fetches of a shard: the compressed file, where there is one. */
static int add_file(struct wanted *l, struct span base, const json_t *shard, const char *what,
                    const struct place *at)
{
    char name[32];

    snprintf(name, sizeof name, "zip_%s", what);
    const json_t *file = json_object_get(shard, name);
    if (!json_is_object(file)) {
        snprintf(name, sizeof name, "raw_%s", what);
        file = json_object_get(shard, name);
    }
    const json_t *base_name = json_object_get(file, "basename");
    if (!json_is_object(file) && strcmp(what, "meta") == 0)
        return CTL_DONE;
    if (!json_is_string(base_name))
        return fail_at(at, "a shard of this index has no basename in raw_data or zip_data");
    json_t *more = json_object();
    if (json_is_integer(json_object_get(file, "bytes")))
        json_object_set(more, "size", json_object_get(file, "bytes"));
    int code = add(l, at, base, span_make(json_string_value(base_name),
                                          json_string_length(base_name)), more);
    json_decref(more);
    return code;
}

static int add_index(struct wanted *l, const char *file, struct span base, const json_t *index)
{
    const json_t *shards = json_object_get(index, "shards");
    struct place at = {.file = file, .line = 1, .column = 1};
    int code = CTL_DONE;

    for (size_t i = 0; i < json_array_size(shards) && code == CTL_DONE; i++) {
        code = add_file(l, base, json_array_get(shards, i), "data", &at);
        if (code == CTL_DONE)
            code = add_file(l, base, json_array_get(shards, i), "meta", &at);
    }
    return code;
}

/* base: of what an index names. */
static int add_text(struct wanted *l, const char *file, struct span base, struct span text)
{
    struct span first = text, rest;
    json_error_t error;

    while (first.len > 0 && strchr(" \t\r\n", first.at[0]))
        first = span_from(first, 1);
    if (first.len == 0 || first.at[0] != '{')
        return add_lines(l, file, text, false);
    json_t *all = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES, &error);
    if (json_is_array(json_object_get(all, "shards"))) {
        int code = add_index(l, file, base, all);
        json_decref(all);
        return code;
    }
    json_decref(all);
    rest = span_cut(&first, '\n');
    json_t *line = json_loadb(rest.at, rest.len, 0, NULL);
    bool lines = json_is_object(line);
    json_decref(line);
    if (lines || all)
        return add_lines(l, file, text, true);
    struct place at = {.file = file, .line = error.line > 0 ? (size_t)error.line : 1,
                       .column = error.column > 0 ? (size_t)error.column : 1};
    return fail_at(&at, error.text);
}

/* NULL: it cannot be read; told. */
static char *read_stream(const char *file, FILE *in, size_t *len)
{
    char *bytes = NULL;
    size_t room = 0;

    *len = 0;
    while (in && !feof(in) && !ferror(in) && *len < FILE_BYTES_MAX) {
        if (room - *len < READ_STEP) {
            room = 2 * room + READ_STEP;
            char *grown = mem_grow(bytes, room);
            if (!grown)
                break;
            bytes = grown;
        }
        *len += fread(bytes + *len, 1, room - *len, in);
    }
    if (in && feof(in) && !ferror(in))
        return bytes;
    fprintf(stderr, "headpond: --manifest %.200s: %s; name a file, - or s3://BUCKET/KEY\n", file,
            !in ? strerrordesc_np(errno) : "it cannot be read, or is too long");
    mem_give(bytes);
    return NULL;
}

static int add_manifest_file(struct wanted *l, const char *file)
{
    bool given = strcmp(file, "-") == 0;
    FILE *in = given ? stdin : fopen(file, "re");
    size_t len;
    char *bytes = read_stream(file, in, &len);
    int code = bytes ? add_text(l, given ? "-" : file, base_of(l), span_make(bytes, len))
                     : CTL_USAGE;

    if (in && !given)
        fclose(in);
    mem_give(bytes);
    return code;
}

/* The object, through the S3 port as any client without a signature has it. */
static int add_manifest_object(struct ctl *c, struct wanted *l, const char *url)
{
    char path[8 * KIB], why[CTL_WHY_BYTES] = "its address is not known, or it speaks TLS";
    struct span whole = span_of(url + strlen("s3://")), key = whole, bucket = span_cut(&key, '/');
    struct reply status = {0}, r = {0};
    struct text t;
    int code = CTL_DONE;

    json_t *known = client_json(c, "/v1/status", &status, &code);
    if (!known)
        return code;
    text_init(&t, path, sizeof path);
    text_addc(&t, '/');
    uri_encode(&t, bucket, false);
    text_addc(&t, '/');
    uri_encode(&t, key, true);
    const char *port = value_text(known, "s3_url");
    bool plain = strncmp(port, "http://", 7) == 0 && !t.over;
    enum err e = plain ? client_get(port, path, c->timeout_ms, &r, why) : ERR_CONFIG;
    json_decref(known);
    reply_free(&status);
    if (e != OK || r.status != 200) {
        if (e == OK)
            snprintf(why, sizeof why, "it answers %u", r.status);
        fprintf(stderr,
                "headpond: --manifest %.300s: the S3 port: %s; fetch it and name the file\n", url,
                why);
        code = e == OK && r.status == 404 ? CTL_NOT_FOUND : e == OK ? CTL_DENIED : CTL_FAILED;
        reply_free(&r);
        return code;
    }
    while (key.len > 0 && key.at[key.len - 1] != '/')
        key.len--;
    /* An index names what stands beside it; another bucket's, what is below our prefix. */
    bool beside = is_bucket(l, bucket);
    code = add_text(l, url, beside ? key : base_of(l), span_make(r.body, r.len));
    reply_free(&r);
    return code;
}

/* ---- the face ---- */
int wanted_read(struct ctl *c, struct wanted *out)
{
    int code = CTL_DONE;

    *out = (struct wanted){0};
    if (c->word_count > 0) {
        struct span place, rest;
        if (!place_read(c->word[0], &place)) {
            fprintf(stderr, "headpond: \"%.80s\" names no bucket; write s3://BUCKET/PREFIX\n",
                    c->word[0]);
            return CTL_USAGE;
        }
        rest = place;
        struct span bucket = span_cut(&rest, '/');
        if (!is_bucket(out, bucket) || rest.len > KEY_MAX) {
            fprintf(stderr, "headpond: \"%.80s\" is no prefix; write s3://BUCKET/PREFIX\n",
                    c->word[0]);
            return CTL_USAGE;
        }
        out->fixed = true;
        if (rest.len > 0)
            memcpy(out->prefix, rest.at, rest.len);
        out->prefix_len = rest.len;
    }
    for (unsigned i = 0; i < c->wds_count && code == CTL_DONE; i++)
        code = add_pattern(out, c->wds[i]);
    if (c->manifest && code == CTL_DONE)
        code = strncmp(c->manifest, "s3://", 5) == 0 ? add_manifest_object(c, out, c->manifest)
                                                     : add_manifest_file(out, c->manifest);
    if (code == CTL_DONE && out->count == 0) {
        fprintf(stderr, "headpond: %.200s names no key\n", c->manifest ? c->manifest : "--wds");
        code = CTL_USAGE;
    }
    return code;
}

void wanted_free(struct wanted *l)
{
    mem_give(l->bytes);
    *l = (struct wanted){0};
}
