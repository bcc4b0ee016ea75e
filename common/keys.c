/* The keys_file: whose signatures the server accepts, and what each key may touch.
 *
 * Invariants:
 *  1. Keys are sorted by access key, each once; a look-up is a binary search and allocates nothing.
 *  2. All text lives in one copy of the file, which is wiped with the secrets.
 *  3. A file with a mistake gives no keys at all; every mistake is told with file:line:column.
 *  4. A key may do what its line says and nothing else; without "rw" it may only read.
 * Life: keys_read() at start and at reload makes one struct; the last request using it lets it go.
 * Failure: ERR_CONFIG with the mistakes, ERR_MEMORY. No message shows a secret or a part of one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ACCESS_BYTES_MAX = CREDS_ACCESS_BYTES_MAX,
    WORDS_MAX = 6,                   /* one more than a line may have */
};

struct keys {
    char *bytes;                     /* owned copy of the file */
    size_t len;
    unsigned count;
    struct key *item;                /* owned; sorted by access key */
    unsigned room;
    struct key_scope *scope;         /* owned; all keys' scopes, one behind the other */
    unsigned scope_count, scope_room;
};

struct keys_reader {
    struct keys *keys;
    const char *name;
    struct conf_mistakes *mistakes;
    unsigned line;
    struct span text;                /* the line */
};

/* ---- mistakes ---- */
static void note(struct conf_mistakes *m, const char *format, ...) printf_like(2, 3);
static void note(struct conf_mistakes *m, const char *format, ...)
{
    if (m->count++ >= CONF_MISTAKES_MAX)
        return;
    struct conf_mistake *one = &m->item[m->count - 1];
    va_list args;
    va_start(args, format);
    vsnprintf(one->text, sizeof(one->text), format, args);
    va_end(args);
}

static void mistake(struct keys_reader *r, struct span at, const char *why)
{
    size_t column = at.at ? (size_t)(at.at - r->text.at) + 1 : r->text.len + 1;
    note(r->mistakes, "%s:%u:%zu: %s", r->name, r->line, column, why);
}

/* ---- words ---- */
static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of a line; empty at its end or at a comment. */
static struct span next_word(struct span *rest)
{
    size_t from = 0, to;
    while (from < rest->len && is_space(rest->at[from]))
        from++;
    for (to = from; to < rest->len && !is_space(rest->at[to]);)
        to++;
    struct span word = span_make(rest->at + from, to - from);
    *rest = span_from(*rest, to);
    if (word.len > 0 && word.at[0] == '#')
        return span_make(word.at, 0);
    return word;
}

static unsigned split_line(struct span line, struct span word[WORDS_MAX])
{
    unsigned count = 0;
    while (count < WORDS_MAX) {
        struct span next = next_word(&line);
        if (next.len == 0)
            break;
        word[count++] = next;
    }
    return count;
}

static bool is_printable(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~')
            return false;
    return true;
}

/* ---- scopes ---- */
static bool is_bucket_name(struct span name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.at[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '-' || c == '_'))
            return false;
    }
    return name.len > 0 && name.len <= BUCKET_BYTES_MAX;
}

static enum err grow(void **items, unsigned count, unsigned *room, size_t item_bytes)
{
    if (count < *room)
        return OK;
    unsigned more = *room ? *room * 2 : 16;
    void *at = mem_take(more * item_bytes);
    if (!at)
        return ERR_MEMORY;
    if (count > 0) {
        memcpy(at, *items, count * item_bytes);
        mem_give_secret(*items, count * item_bytes);
    }
    *items = at;
    *room = more;
    return OK;
}

/* Scope lists move while they grow, so a key notes its first one by number until all are read. */
static enum err read_scopes(struct keys_reader *r, struct span list, struct key *key)
{
    struct keys *k = r->keys;
    while (list.len > 0) {
        bool last = span_find(list, ',') == list.len;
        struct span word = span_cut(&list, ','), rest = word;
        struct key_scope scope = {.bucket = span_cut(&rest, '/')};
        scope.prefix = rest;
        if (!is_bucket_name(scope.bucket))
            mistake(r, word, "a scope is bucket or bucket/prefix, without wildcards");
        else if (scope.prefix.len > KEY_BYTES_MAX)
            mistake(r, word, "the prefix is longer than 1024 bytes");
        if (!last && list.len == 0)
            mistake(r, span_make(word.at + word.len, 1), "a scope must follow the comma");
        if (key->scope_count == KEYS_SCOPES_MAX) {
            mistake(r, word, "more than 64 scopes");
            return OK;
        }
        void *items = k->scope;
        TRY(grow(&items, k->scope_count, &k->scope_room, sizeof(*k->scope)));
        k->scope = items;
        k->scope[k->scope_count++] = scope;
        key->scope_count++;
    }
    return OK;
}

/* ---- lines ---- */
static void check_pair(struct keys_reader *r, struct span access, struct span secret)
{
    if (access.len > ACCESS_BYTES_MAX)
        mistake(r, access, "the access key is longer than 128 characters");
    if (!is_printable(access) || span_find(access, ',') < access.len)
        mistake(r, access, "the access key has a character other than printable ASCII, or a comma");
    if (secret.len > SECRET_BYTES_MAX)
        mistake(r, secret, "the secret key is longer than 256 characters");
    if (!is_printable(secret))
        mistake(r, secret, "the secret key has a character other than printable ASCII");
}

/* The name of a section of ~/.aws files; there it may have blanks, here it cannot. */
static void read_profile(struct keys_reader *r, struct span word, struct key *key)
{
    struct span name = span_from(word, strlen("profile="));
    if (key->profile.at)
        mistake(r, word, "a key has one profile");
    else if (name.len == 0)
        mistake(r, word, "profile= needs a name");
    else if (name.len > KEYS_PROFILE_BYTES_MAX)
        mistake(r, word, "the profile's name is longer than 64 characters");
    else if (!is_printable(name) || span_find(name, ']') < name.len)
        mistake(r, word, "the profile's name has a character that cannot stand in one");
    key->profile = name;
}

/* "[ro|rw] [bucket[/prefix],...] [profile=NAME]", in this order. */
static enum err read_rights(struct keys_reader *r, const struct span *word, unsigned count,
                            struct key *key)
{
    for (unsigned i = 0; i < count; i++) {
        bool right = span_is(word[i], "ro") || span_is(word[i], "rw");
        if (span_starts(word[i], span_of("profile="))) {
            read_profile(r, word[i], key);
        } else if (key->profile.at) {
            mistake(r, word[i], "profile= stands at the end of the line");
        } else if (right && i == 0) {
            key->write = span_is(word[i], "rw");
        } else if (right) {
            mistake(r, word[i], "ro or rw stands directly behind the secret key");
        } else if (key->scope_count > 0) {
            mistake(r, word[i], "scopes are one list separated by commas, without blanks");
        } else {
            TRY(read_scopes(r, word[i], key));
        }
    }
    return OK;
}

static enum err read_line(struct keys_reader *r)
{
    struct span word[WORDS_MAX];
    struct keys *k = r->keys;
    unsigned count = split_line(r->text, word);
    if (count == 0)
        return OK;
    if (count == 1) {
        mistake(r, (struct span){NULL, 0},
                "the secret key is missing: ACCESS SECRET [ro|rw] [bucket[/prefix],...] "
                "[profile=NAME]");
        return OK;
    }
    if (k->count == KEYS_MAX) {
        mistake(r, word[0], "more than 1024 keys");
        return OK;
    }
    check_pair(r, word[0], word[1]);
    void *items = k->item;
    TRY(grow(&items, k->count, &k->room, sizeof(*k->item)));
    k->item = items;
    struct key *key = &k->item[k->count++];
    *key = (struct key){.access_key = word[0], .line = r->line, .index = k->scope_count};
    key->secret.len = (uint16_t)min_u64(word[1].len, SECRET_BYTES_MAX);
    memcpy(key->secret.bytes, word[1].at, key->secret.len);
    return read_rights(r, word + 2, count - 2, key);
}

/* ---- the whole file ---- */
static int compare_keys(const void *a, const void *b)
{
    const struct key *left = a, *right = b;
    int order = span_compare(left->access_key, right->access_key);
    if (order != 0)
        return order;
    return left->line < right->line ? -1 : 1;
}

/* Until now `index` was the number of the key's first scope. */
static void finish(struct keys_reader *r)
{
    struct keys *k = r->keys;
    if (k->count > 1)
        qsort(k->item, k->count, sizeof(*k->item), compare_keys);
    for (unsigned i = 0; i < k->count; i++) {
        struct key *key = &k->item[i];
        key->scope = key->scope_count > 0 ? k->scope + key->index : NULL;
        key->index = i;
        if (i > 0 && span_eq(key->access_key, key[-1].access_key))
            note(r->mistakes, "%s:%u:1: the access key stands in line %u already", r->name,
                 key->line, key[-1].line);
    }
    if (k->count == 0 && r->mistakes->count == 0)
        note(r->mistakes, "%s:1:1: there is no key in this file", r->name);
}

static enum err read_lines(struct keys_reader *r)
{
    struct span rest = span_make(r->keys->bytes, r->keys->len);
    while (rest.len > 0) {
        r->text = span_cut(&rest, '\n');
        r->line++;
        TRY(read_line(r));
    }
    finish(r);
    return OK;
}

enum err keys_parse(struct span bytes, const char *name, struct keys **out,
                    struct conf_mistakes *mistakes)
{
    struct keys *k = mem_take(sizeof(*k));
    if (!k)
        return ERR_MEMORY;
    struct keys_reader r = {.keys = k, .name = name, .mistakes = mistakes};
    mistakes->count = 0;
    k->bytes = mem_copy(bytes);
    k->len = bytes.len;
    enum err e = k->bytes ? read_lines(&r) : ERR_MEMORY;
    if (e == OK && mistakes->count > 0)
        e = ERR_CONFIG;
    if (e != OK) {
        keys_give(k);
        return e;
    }
    *out = k;
    return OK;
}

enum err keys_read(const char *path, struct keys **out, struct conf_mistakes *mistakes)
{
    char sentence[sizeof(mistakes->item[0].text)];
    struct text why;
    char *bytes = NULL;
    size_t len = 0;
    mistakes->count = 0;
    text_init(&why, sentence, sizeof(sentence));
    enum err e = creds_file(path, true, &bytes, &len, &why);
    if (e == ERR_MEMORY)
        return e;
    if (e != OK) {
        note(mistakes, "%s", sentence);
        return ERR_CONFIG;
    }
    e = keys_parse(span_make(bytes, len), path, out, mistakes);
    mem_give_secret(bytes, len + 1);
    return e;
}

void keys_give(struct keys *k)
{
    if (!k)
        return;
    if (k->item)
        mem_give_secret(k->item, k->count * sizeof(*k->item));
    if (k->bytes)
        mem_give_secret(k->bytes, k->len + 1);
    mem_give(k->scope);
    mem_give(k);
}

/* ---- questions ---- */
unsigned keys_count(const struct keys *k)
{
    return k->count;
}

const struct key *keys_at(const struct keys *k, unsigned index)
{
    must(index < k->count);
    return &k->item[index];
}

void keys_set_profile(struct keys *k, unsigned index, uint8_t number)
{
    must(index < k->count);
    k->item[index].profile_number = number;
}

const struct key *keys_find(const struct keys *k, struct span access_key)
{
    unsigned from = 0, to = k->count;
    while (from < to) {
        unsigned middle = (from + to) / 2;
        int order = span_compare(access_key, k->item[middle].access_key);
        if (order == 0)
            return &k->item[middle];
        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }
    return NULL;
}

bool keys_allow(const struct key *k, bool write, struct span bucket, struct span object)
{
    if (write && !k->write)
        return false;
    for (unsigned i = 0; i < k->scope_count; i++)
        if (span_eq(k->scope[i].bucket, bucket) && span_starts(object, k->scope[i].prefix))
            return true;
    return k->scope_count == 0;
}

bool keys_allow_bucket(const struct key *k, struct span bucket)
{
    for (unsigned i = 0; i < k->scope_count; i++)
        if (span_eq(k->scope[i].bucket, bucket))
            return true;
    return k->scope_count == 0;
}

bool keys_allow_settings(const struct key *k, bool write)
{
    return k->scope_count == 0 && (k->write || !write);
}
