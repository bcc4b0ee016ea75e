/* Buckets and listings of a directory upstream, as S3 documents, on the thread "headpond-list".
 *
 * Invariants:
 *  1. Blocking calls happen on this thread only; a loop hands over a job and is woken by a message.
 *  2. A page has at most 1000 items, whatever is asked; its document is made whole before it is
 *     told.
 *  3. The root stays the number it was opened as: what is mounted at its path later takes that
 *     number over, on this thread, when a bucket is not found.
 *  4. Tokens are opaque to clients and checked when they come back: a changed one is
 *     InvalidArgument, never a crash.
 *
 * Life: lister_open() with the upstream, lister_close() after the last core; a job lives in the
 * exchange that waits for it.
 * Failure: an S3 error document, or an error for a directory that cannot be read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/origin/inside.h"
#include "xml.h"

enum {
    KEYS_PER_PAGE = 1000,
    BUCKETS_MAX = 10000,
    ITEM_BYTES_MAX = 8 * KIB,        /* a key of 1024 bytes, each escaped to 6, and the rest */
    HEAD_BYTES = 40 * KIB,           /* five strings like that */
    TOKEN_BYTES_MAX = 2 * (KEY_BYTES_MAX + 1),
};

static const char owner_id[] = "headpond";
static const char namespace_[] = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/* ---- documents that grow ---- */

struct page {
    struct text t;
    bool short_of_memory;
};

/* Room for one more item. */
static void page_room(struct page *p, size_t bytes)
{
    if (p->short_of_memory || p->t.cap - p->t.len > bytes)
        return;
    size_t cap = p->t.cap * 2 + bytes + 1;
    char *at = mem_grow(p->t.at, cap);
    if (!at) {
        p->short_of_memory = true;
        return;
    }
    p->t.at = at;
    p->t.cap = cap;
}

static void page_init(struct page *p)
{
    *p = (struct page){{0}, false};
    page_room(p, ITEM_BYTES_MAX);
}

static enum err page_finish(struct page *p, uint16_t status, struct dir_answer *out)
{
    if (p->short_of_memory || p->t.over) {
        mem_give(p->t.at);
        return ERR_MEMORY;
    }
    *out = (struct dir_answer){.status = status, .body = p->t.at, .len = p->t.len};
    return OK;
}

static void open_root(struct text *t, const char *name)
{
    xml_declaration(t);
    text_addf(t, "<%s%s>", name, namespace_);
}

enum err dir_error(uint16_t status, const char *code, const char *message, struct span resource,
                   struct dir_answer *out)
{
    struct page p;

    page_init(&p);
    if (p.short_of_memory)
        return ERR_MEMORY;
    xml_declaration(&p.t);
    xml_open_tag(&p.t, "Error");
    xml_leaf_text(&p.t, "Code", span_of(code));
    xml_leaf_text(&p.t, "Message", span_of(message));
    xml_leaf_text(&p.t, "Resource", span_make(resource.at, min_u64(resource.len, KEY_BYTES_MAX)));
    xml_close_tag(&p.t, "Error");
    return page_finish(&p, status, out);
}

/* ---- what is asked ---- */

struct span dir_subresource(struct span query)
{
    static const char *const names[] = {
        "accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption",
        "intelligent-tiering", "inventory", "legal-hold", "lifecycle", "location", "logging",
        "metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus",
        "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select",
        "session", "tagging", "torrent", "uploadId", "uploads", "versioning", "versions",
        "website",
    };
    struct uri_pair pair;
    char memory[URI_NAME_BYTES_MAX];

    while (uri_next_pair(&query, &pair)) {
        struct span name = uri_name(&pair, memory);
        for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
            if (span_is(name, names[i]))
                return span_of(names[i]);
        }
    }
    return span_make("", 0);
}

struct words {                       /* one decoded parameter */
    char at[TOKEN_BYTES_MAX];
    size_t len;
    bool given;
};

struct list_ask {
    struct words prefix, delimiter, marker, start_after, token, max_keys, encoding, owner, type;
    bool v2, url, fetch_owner;
    uint64_t most;
    char resume[TOKEN_BYTES_MAX / 2]; /* the token's content */
    size_t resume_len;
    const char *wrong;               /* the message of InvalidArgument */
};

static struct span words_span(const struct words *w)
{
    return span_make(w->at, w->len);
}

static struct words *words_of(struct list_ask *l, struct span name)
{
    const struct {
        const char *name;
        struct words *words;
    } known[] = {
        {"prefix", &l->prefix}, {"delimiter", &l->delimiter}, {"marker", &l->marker},
        {"start-after", &l->start_after}, {"continuation-token", &l->token},
        {"max-keys", &l->max_keys}, {"encoding-type", &l->encoding}, {"fetch-owner", &l->owner},
        {"list-type", &l->type},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(known); i++) {
        if (span_is(name, known[i].name))
            return known[i].words;
    }
    return NULL;
}

static void read_max_keys(struct list_ask *l)
{
    uint64_t n;

    l->most = KEYS_PER_PAGE;
    if (l->max_keys.len == 0)
        return;
    if (span_u64(words_span(&l->max_keys), &n) != OK || n > INT32_MAX)
        l->wrong = "Argument max-keys must be an integer between 0 and 2147483647";
    else
        l->most = min_u64(n, KEYS_PER_PAGE);
}

/* "k" or "p" and the last item, in hex. */
static void read_token(struct list_ask *l)
{
    size_t len = l->token.len / 2;

    if (!l->token.given)
        return;
    l->resume_len = len;
    if (l->token.len % 2 != 0 || len < 2 ||
        hex_read(words_span(&l->token), (uint8_t *)l->resume, len) != OK ||
        (l->resume[0] != 'k' && l->resume[0] != 'p'))
        l->wrong = "The continuation token provided is incorrect";
}

static void read_list_ask(struct span query, struct list_ask *l)
{
    struct uri_pair pair;
    char memory[URI_NAME_BYTES_MAX];

    *l = (struct list_ask){.wrong = NULL};
    while (uri_next_pair(&query, &pair)) {
        struct words *w = words_of(l, uri_name(&pair, memory));
        if (!w)
            continue;
        w->given = true;
        if (uri_decode(pair.value, true, w->at, sizeof(w->at), &w->len) != OK)
            l->wrong = "An argument is too long or badly encoded";
    }
    l->v2 = span_is(words_span(&l->type), "2");
    l->url = span_is(words_span(&l->encoding), "url");
    l->fetch_owner = !l->v2 || span_is(words_span(&l->owner), "true");
    if (l->encoding.len && !l->url)
        l->wrong = "Invalid Encoding Method specified in Request";
    const struct words *keys[] = {&l->prefix, &l->delimiter, &l->marker, &l->start_after};
    for (unsigned i = 0; i < ARRAY_COUNT(keys); i++) {
        if (keys[i]->len > KEY_BYTES_MAX)
            l->wrong = "An argument is longer than a key can be";
    }
    read_max_keys(l);
    if (l->v2)
        read_token(l);
}

/* ---- ListObjects, both versions ---- */

/* S3's own coding of encoding-type=url: not quite that of URIs. */
static void add_coded(struct text *t, struct span value)
{
    static const char digits[] = "0123456789ABCDEF";

    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = (uint8_t)value.at[i];
        bool bare = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                    (c != '\0' && strchr("-_./*", c));
        if (bare || c == ' ') {
            text_addc(t, c == ' ' ? '+' : (char)c);
        } else {
            text_addc(t, '%');
            text_addc(t, digits[c >> 4]);
            text_addc(t, digits[c & 15]);
        }
    }
}

static void add_name(struct text *t, const char *tag, struct span value, bool url)
{
    if (!url) {
        xml_leaf_text(t, tag, value);
        return;
    }
    xml_open_tag(t, tag);
    add_coded(t, value);
    xml_close_tag(t, tag);
}

static void add_item(struct text *t, const struct list_ask *l, const struct walk_item *i)
{
    char date[25];

    if (i->prefix) {
        xml_open_tag(t, "CommonPrefixes");
        add_name(t, "Prefix", i->key, l->url);
        xml_close_tag(t, "CommonPrefixes");
        return;
    }
    xml_open_tag(t, "Contents");
    add_name(t, "Key", i->key, l->url);
    iso_date_write(i->modified_ms, date);
    xml_leaf_text(t, "LastModified", span_make(date, strnlen(date, sizeof(date))));
    xml_leaf_text(t, "ETag", span_of(i->etag));
    xml_leaf_u64(t, "Size", i->size);
    if (l->fetch_owner) {
        xml_open_tag(t, "Owner");
        xml_leaf_text(t, "ID", span_of(owner_id));
        xml_leaf_text(t, "DisplayName", span_of(owner_id));
        xml_close_tag(t, "Owner");
    }
    xml_leaf_text(t, "StorageClass", span_of("STANDARD"));
    xml_close_tag(t, "Contents");
}

struct list_page {
    struct page items;
    uint64_t count;
    bool truncated, last_is_prefix;
    char last[KEY_BYTES_MAX];        /* the item told last */
    size_t last_len;
};

static enum err fill_page(struct walk *w, const struct list_ask *l, struct list_page *p)
{
    struct walk_item item;
    bool more = l->most > 0;

    while (more && p->count < l->most) {
        TRY(walk_next(w, &item, &more));
        if (!more)
            return OK;
        page_room(&p->items, ITEM_BYTES_MAX);
        if (p->items.short_of_memory)
            return ERR_MEMORY;
        add_item(&p->items.t, l, &item);
        p->count++;
        p->last_is_prefix = item.prefix;
        p->last_len = item.key.len;
        memcpy(p->last, item.key.at, item.key.len);
    }
    return more ? walk_next(w, &item, &p->truncated) : OK;
}

static void add_next(struct text *t, const struct list_ask *l, const struct list_page *p)
{
    char token[TOKEN_BYTES_MAX], content[KEY_BYTES_MAX + 1];

    if (!p->truncated)
        return;
    if (!l->v2) {
        if (l->delimiter.len)
            add_name(t, "NextMarker", span_make(p->last, p->last_len), l->url);
        return;
    }
    content[0] = p->last_is_prefix ? 'p' : 'k';
    memcpy(content + 1, p->last, p->last_len);
    hex_write((const uint8_t *)content, p->last_len + 1, token);
    xml_leaf_text(t, "NextContinuationToken", span_make(token, 2 * (p->last_len + 1)));
}

static void add_list_head(struct text *t, const struct ask *a, const struct list_ask *l,
                          const struct list_page *p)
{
    open_root(t, "ListBucketResult");
    xml_leaf_text(t, "Name", a->bucket);
    add_name(t, "Prefix", words_span(&l->prefix), l->url);
    if (!l->v2)
        add_name(t, "Marker", words_span(&l->marker), l->url);
    if (l->v2 && l->token.given)
        xml_leaf_text(t, "ContinuationToken", words_span(&l->token));
    if (l->v2 && l->start_after.len)
        add_name(t, "StartAfter", words_span(&l->start_after), l->url);
    add_next(t, l, p);
    if (l->v2)
        xml_leaf_u64(t, "KeyCount", p->count);
    xml_leaf_u64(t, "MaxKeys", l->most);
    if (l->delimiter.len)
        add_name(t, "Delimiter", words_span(&l->delimiter), l->url);
    if (l->url)
        xml_leaf_text(t, "EncodingType", span_of("url"));
    xml_leaf_text(t, "IsTruncated", span_of(p->truncated ? "true" : "false"));
}

static enum err write_list(const struct ask *a, const struct list_ask *l, const struct list_page *p,
                           struct dir_answer *out)
{
    struct page whole;

    page_init(&whole);
    page_room(&whole, HEAD_BYTES + p->items.t.len);
    if (whole.short_of_memory)
        return ERR_MEMORY;
    add_list_head(&whole.t, a, l, p);
    text_add(&whole.t, text_span(&p->items.t));
    xml_close_tag(&whole.t, "ListBucketResult");
    return page_finish(&whole, 200, out);
}

static void begin_behind(struct walk *w, const struct list_ask *l)
{
    struct span resume = span_make(l->resume + 1, l->resume_len ? l->resume_len - 1 : 0);

    if (l->resume_len && l->resume[0] == 'p')
        walk_after_prefix(w, resume);
    else if (l->resume_len)
        walk_after_key(w, resume);
    else if (l->v2 && l->start_after.len)
        walk_after_key(w, words_span(&l->start_after));
    else if (!l->v2 && l->marker.len)
        walk_after_key(w, words_span(&l->marker));
}

static enum err list_with(const struct dir_place *bucket, const struct ask *a, struct list_ask *l,
                          struct dir_answer *out)
{
    struct list_page *p;
    struct walk *w;
    enum err e = ERR_MEMORY;

    read_list_ask(a->query, l);
    if (l->wrong)
        return dir_error(400, "InvalidArgument", l->wrong, a->bucket, out);
    p = mem_take(sizeof(*p));
    w = walk_open(bucket, words_span(&l->prefix), words_span(&l->delimiter));
    if (p && w) {
        page_init(&p->items);
        begin_behind(w, l);
        e = p->items.short_of_memory ? ERR_MEMORY : fill_page(w, l, p);
        if (e == OK)
            e = write_list(a, l, p, out);
        mem_give(p->items.t.at);
    }
    walk_close(w);
    mem_give(p);
    return e;
}

static enum err answer_list(const struct dir_place *bucket, const struct ask *a,
                            struct dir_answer *out)
{
    struct list_ask *l = mem_take(sizeof(*l));

    if (!l)
        return ERR_MEMORY;
    enum err e = list_with(bucket, a, l, out);
    mem_give(l);
    return e;
}

/* ---- ListBuckets, HeadBucket, GetBucketLocation ---- */

struct buckets {
    char *name[BUCKETS_MAX];
    unsigned count;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum err look_at_bucket(int root_fd, const char *name, struct statx *st, bool *is)
{
    int result = dir_bucket_name(span_of(name)) ? dir_stat(root_fd, name, st) : -ENOENT;

    *is = result == 0 && S_ISDIR(st->stx_mode);
    return result == 0 ? OK : dir_missing(result);
}

static enum err read_buckets(int root_fd, struct buckets *b)
{
    int fd = dir_open(root_fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *d;
    struct statx st;
    enum err e = OK;
    bool is;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return ERR_UPSTREAM_CONNECT;
    }
    errno = 0;
    while (e == OK && b->count < BUCKETS_MAX && (d = readdir(dir))) {
        e = look_at_bucket(root_fd, d->d_name, &st, &is);
        if (e == OK && is) {
            b->name[b->count] = mem_copy(span_of(d->d_name));
            e = b->name[b->count] ? OK : ERR_MEMORY;
            b->count += e == OK;
        }
        errno = 0;
    }
    if (e == OK && errno != 0)
        e = ERR_UPSTREAM_CONNECT;
    closedir(dir);
    qsort(b->name, b->count, sizeof(b->name[0]), by_text);
    return e;
}

static enum err add_bucket(struct page *p, int root_fd, const char *name)
{
    struct statx st;
    char date[25];
    bool is;

    page_room(p, ITEM_BYTES_MAX);
    if (p->short_of_memory)
        return ERR_MEMORY;
    TRY(look_at_bucket(root_fd, name, &st, &is));
    if (!is)
        return OK;                   /* gone meanwhile */
    iso_date_write((uint64_t)st.stx_mtime.tv_sec * 1000, date);
    xml_open_tag(&p->t, "Bucket");
    xml_leaf_text(&p->t, "Name", span_of(name));
    xml_leaf_text(&p->t, "CreationDate", span_make(date, strnlen(date, sizeof(date))));
    xml_close_tag(&p->t, "Bucket");
    return OK;
}

static enum err answer_buckets(int root_fd, struct dir_answer *out)
{
    struct buckets *b = mem_take(sizeof(*b));
    struct page p;

    if (!b)
        return ERR_MEMORY;
    enum err e = read_buckets(root_fd, b);
    page_init(&p);
    page_room(&p, ITEM_BYTES_MAX);
    if (!p.short_of_memory) {
        open_root(&p.t, "ListAllMyBucketsResult");
        text_addf(&p.t, "<Owner><ID>%s</ID><DisplayName>%s</DisplayName></Owner><Buckets>",
                  owner_id, owner_id);
    }
    for (unsigned i = 0; i < b->count; i++) {
        e = e == OK ? add_bucket(&p, root_fd, b->name[i]) : e;
        mem_give(b->name[i]);
    }
    mem_give(b);
    if (e != OK) {
        mem_give(p.t.at);
        return e;
    }
    page_room(&p, ITEM_BYTES_MAX);
    if (!p.short_of_memory)
        text_adds(&p.t, "</Buckets></ListAllMyBucketsResult>");
    return page_finish(&p, 200, out);
}

static enum err answer_location(struct dir_answer *out)
{
    struct page p;

    page_init(&p);
    if (p.short_of_memory)
        return ERR_MEMORY;
    open_root(&p.t, "LocationConstraint"); /* empty: us-east-1 */
    text_adds(&p.t, "</LocationConstraint>");
    return page_finish(&p, 200, out);
}

static enum err answer_bucket(const struct dir_place *bucket, const struct ask *a,
                              struct dir_answer *out)
{
    struct span sub = dir_subresource(a->query);

    if (a->method == HTTP_HEAD) {
        *out = (struct dir_answer){.status = 200};
        return OK;
    }
    if (sub.len == 0)
        return answer_list(bucket, a, out);
    if (span_is(sub, "location"))
        return answer_location(out);
    return dir_error(501, "NotImplemented", "A directory as upstream has no such sub-resource", sub,
                     out);
}

enum err dir_answer(const struct dir_place *root, const struct ask *a, struct dir_answer *out)
{
    char name[BUCKET_BYTES_MAX + 1];
    struct dir_place bucket = *root;
    int fd = -ENOENT;

    if (a->method != HTTP_GET && a->method != HTTP_HEAD)
        return dir_error(501, "NotImplemented", "This directory is read-only through headpond",
                         a->bucket, out);
    if (a->bucket.len == 0)
        return answer_buckets(root->fd, out);
    if (dir_bucket_name(a->bucket)) {
        memcpy(name, a->bucket.at, a->bucket.len);
        name[a->bucket.len] = '\0';
        fd = dir_open(root->fd, name, O_PATH | O_DIRECTORY);
    }
    if (fd >= 0) {
        bucket.fd = fd;
        enum err e = answer_bucket(&bucket, a, out);
        close(fd);
        return e;
    }
    if (fd == -EACCES || fd == -EPERM)
        return dir_error(403, "AccessDenied", "Access Denied", a->bucket, out);
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV)
        return dir_error(404, "NoSuchBucket", "The specified bucket does not exist", a->bucket,
                         out);
    return ERR_UPSTREAM_CONNECT;
}

/* ---- the thread ---- */

struct lister {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct dir_job *first, **last;
    int root_fd;
    const char *path;                /* borrowed */
    struct dir_names *kept;          /* the thread's */
    bool stop;
};

static void deliver_job(struct core *c, struct message *msg)
{
    struct dir_job *job = container_of(msg, struct dir_job, msg);
    (void)c;
    must(job->m->inflight > 0);
    job->done = true;
    job->m->inflight--;
    machine_wake(job->m);
}

/* The root is opened at the start, perhaps before its file system is mounted there, and that may be
 * mounted anew. What stands at its path now takes the place of what is another directory. */
static bool root_has_changed(const struct lister *l)
{
    int fd = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat was, now;

    if (fd < 0)
        return false;
    bool other = fstat(fd, &now) == 0 && (fstat(l->root_fd, &was) != 0 ||
        was.st_dev != now.st_dev || was.st_ino != now.st_ino);
    bool taken = other && dup3(fd, l->root_fd, O_CLOEXEC) >= 0;
    close(fd);
    return taken;
}

static void serve_job(const struct lister *l, struct dir_job *job)
{
    const struct dir_place root = {l->root_fd, l->kept, &job->unwanted};

    if (job->root_only) {
        (void)root_has_changed(l);
        return;
    }
    if (atomic_load(&job->unwanted)) {
        job->why = ERR_TIMEOUT;
        return;
    }
    if (job->ask->bucket.len == 0)
        (void)root_has_changed(l);
    job->why = dir_answer(&root, job->ask, &job->answer);
    bool absent = job->why == OK && job->answer.status == 404;
    if ((!absent && job->why != ERR_UPSTREAM_CONNECT) || !root_has_changed(l))
        return;
    mem_give(job->answer.body);
    job->answer = (struct dir_answer){.body = NULL};
    job->why = dir_answer(&root, job->ask, &job->answer);
}

/* The lock is held. Old names leave meanwhile. */
static void wait_for_job(struct lister *l)
{
    struct timespec until;

    if (!dir_names_tidy(l->kept)) {
        pthread_cond_wait(&l->changed, &l->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_clockwait(&l->changed, &l->lock, CLOCK_MONOTONIC, &until);
}

static void *lister_main(void *arg)
{
    struct lister *l = arg;

    pthread_setname_np(pthread_self(), "headpond-list");
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        struct dir_job *job = l->first;
        if (!job) {
            wait_for_job(l);
            continue;
        }
        l->first = job->next;
        if (!l->first)
            l->last = &l->first;
        pthread_mutex_unlock(&l->lock);
        serve_job(l, job);
        core_send(job->m->core, &job->msg);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

enum err lister_open(int root_fd, const char *path, struct lister **out)
{
    struct lister *l = mem_take(sizeof(*l));
    sigset_t all, old;

    if (!l)
        return ERR_MEMORY;
    l->kept = dir_names_make(DIR_NAMES_BYTES);
    if (!l->kept) {
        mem_give(l);
        return ERR_MEMORY;
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->last = &l->first;
    l->root_fd = root_fd;
    l->path = path;
    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&l->thread, NULL, lister_main, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        dir_names_free(l->kept);
        mem_give(l);
        return ERR_SYSTEM;
    }
    *out = l;
    return OK;
}

void lister_close(struct lister *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    dir_names_free(l->kept);
    mem_give(l);
}

void lister_ask(struct lister *l, struct dir_job *job, struct machine *m)
{
    job->msg.deliver = deliver_job;
    job->next = NULL;
    job->m = m;
    job->done = false;
    atomic_store(&job->unwanted, false);
    m->inflight++;
    pthread_mutex_lock(&l->lock);
    struct dir_job **at = job->root_only ? &l->first : l->last; /* that is soon done */
    job->next = *at;
    *at = job;
    if (!job->next)
        l->last = &job->next;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}
