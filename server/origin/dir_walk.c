/* The keys below a directory in the byte order of whole keys, one by one, with common prefixes.
 *
 * Invariants:
 *  1. Within a directory an entry's place is that of its name, a sub-directory's that of its name
 *     and "/": so a walk that goes down at once meets all keys in byte order, and "a.txt" comes
 *     before "a/x".
 *  2. Memory is bounded: a directory's names are taken in batches, in order, from those of one pass
 *     over all of them that are kept for a while (dir_names.c).
 *  3. Nothing outside the bucket is opened, links included; a directory that is its own ancestor is
 *     not entered again.
 *  4. A key is listed only if a GET of it would find it: regular file, possible key.
 *
 * Life: one walk per page, on the lister's thread; no descriptor but the bucket's, which is the
 * caller's, stays open between two calls.
 * Failure: what vanishes meanwhile is left out, and so is what the server may not enter; what
 * cannot be looked at for any other reason ends the walk with an error, as a listing with silent
 * holes would look like deleted objects. */
/* SPDX-License-Identifier: Apache-2.0 */
#define XXH_INLINE_ALL
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include "server/origin/inside.h"

enum {
    BATCH = 1024,                    /* a page has at most 1000 keys */
    BATCH_DEEP = 64,                 /* below DEEP levels */
    DEEP = 8,
    LEVELS_MAX = KEY_BYTES_MAX / 2,  /* "a/" each */
    LOOK_MAX = 4096,                 /* directories looked into for one file */
    AGAIN_MAX = 16,
};

/* ---- names and entry tags ---- */

void dir_etag(const struct statx *st, char out[DIR_ETAG_BYTES + 1])
{
    const uint64_t seen[] = {
        st->stx_ino, st->stx_size,   /* no device: NFS has another number at each mount */
        (uint64_t)st->stx_mtime.tv_sec * 1000000000u + st->stx_mtime.tv_nsec,
        (uint64_t)st->stx_ctime.tv_sec * 1000000000u + st->stx_ctime.tv_nsec,
    };
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(seen, sizeof(seen)));
    out[0] = '"';
    hex_write(hash.digest, sizeof(hash.digest), out + 1);
    /* "-1", as of an upload in one part: 32 bare digits would be taken for the MD5 of the bytes and
     * compared with it. */
    memcpy(out + 33, "-1\"", 4);
}

bool dir_bucket_name(struct span bucket)
{
    if (bucket.len == 0 || bucket.len > BUCKET_BYTES_MAX)
        return false;
    for (size_t i = 0; i < bucket.len; i++) {
        char c = bucket.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (i == 0 || (c != '-' && c != '_' && c != '.')))
            return false;
    }
    return true;
}

/* S3's keys are UTF-8: a file with another name can neither be asked for nor be told in XML. */
static bool is_segment(struct span s)
{
    return s.len > 0 && !span_is(s, ".") && !span_is(s, "..") && !memchr(s.at, '\0', s.len) &&
           span_is_utf8(s);
}

bool dir_key_name(struct span key)
{
    if (key.len == 0 || key.len > KEY_BYTES_MAX || key.at[key.len - 1] == '/')
        return false;
    while (key.len) {
        if (!is_segment(span_cut(&key, '/')))
            return false;
    }
    return true;
}

int dir_open(int below_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;

    for (unsigned i = 0; i < AGAIN_MAX; i++) {
        fd = syscall(SYS_openat2, below_fd, path, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) /* EAGAIN: a rename came between */
            break;
    }
    return fd >= 0 ? (int)fd : -errno;
}

int dir_stat(int below_fd, const char *path, struct statx *out)
{
    int fd = dir_open(below_fd, path, O_PATH);
    if (fd < 0)
        return fd;
    int result = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, out) == 0 ? 0 : -errno;
    close(fd);
    return result;
}

enum err dir_missing(int result)
{
    switch (-result) {
    case ENOENT: case ENOTDIR: case ELOOP: case EXDEV: case EACCES: case EPERM: case ENAMETOOLONG:
        return OK;
    case ENOMEM:
        return ERR_MEMORY;
    default:
        return ERR_UPSTREAM_CONNECT;
    }
}

/* ---- one directory of the walk ---- */

struct entry {
    char *name;                      /* owned; a directory's ends with '/' */
    size_t len;
};

struct level {
    size_t path_len;                 /* of w->path that leads here: "" or "a/b/" */
    uint64_t inode;
    uint32_t major, minor;
    struct entry *batch;             /* owned; sorted */
    size_t count, at;
    bool more;                       /* the directory has more behind the batch */
    char *last;                      /* owned; the name taken last, NULL at first */
    size_t last_len;
};

struct walk {
    struct dir_place in;             /* the bucket; what it names is borrowed */
    struct statx bucket;             /* as it was at the start */
    char prefix[KEY_BYTES_MAX], delimiter[KEY_BYTES_MAX], bound[KEY_BYTES_MAX + 1];
    size_t prefix_len, delimiter_len, bound_len;
    bool bounded, past;              /* keys behind bound; past: and not beginning with it */
    bool started, resumed;           /* resumed: it goes on with a list that began before */
    bool followed;                   /* the pass under way met what may be a link */
    char path[KEY_BYTES_MAX + 1];    /* of the entry in hand, below the bucket */
    unsigned depth;
    struct level level[LEVELS_MAX];
};

static bool is_unwanted(const struct walk *w)
{
    return w->in.unwanted && atomic_load_explicit(w->in.unwanted, memory_order_relaxed);
}

static struct span prefix_of(const struct walk *w)
{
    return span_make(w->prefix, w->prefix_len);
}

static struct span bound_of(const struct walk *w)
{
    return span_make(w->bound, w->bound_len);
}

static void free_batch(struct level *l)
{
    for (size_t i = 0; i < l->count; i++)
        mem_give(l->batch[i].name);
    mem_give(l->batch);
    l->batch = NULL;
    l->count = l->at = 0;
}

static void pop(struct walk *w)
{
    struct level *l = &w->level[--w->depth];
    free_batch(l);
    mem_give(l->last);
    l->last = NULL;
}

/* May anything at or below this path (a directory's ends with '/') still be listed? */
static bool may_list(const struct walk *w, struct span path, bool directory)
{
    struct span prefix = prefix_of(w), bound = bound_of(w);

    if (!span_starts(path, prefix) && !(directory && span_starts(prefix, path)))
        return false;
    if (!w->bounded)
        return true;
    if (w->past && span_starts(path, bound))
        return false;
    if (directory && span_starts(bound, path))
        return !w->past || bound.len > path.len;
    return span_compare(path, bound) > 0;
}

/* "a/b" of the directory or file at w->path[0..len), "." of the bucket. */
static void disk_path(const struct walk *w, size_t len, char out[DIR_PATH_BYTES])
{
    struct text t;

    while (len && w->path[len - 1] == '/')
        len--;
    text_init(&t, out, DIR_PATH_BYTES);
    text_add(&t, len ? span_make(w->path, len) : span_of("."));
    must(!t.over);
}

enum kind { KIND_NONE, KIND_FILE, KIND_DIRECTORY };

/* What stands at path; links are followed as far as they stay in the bucket. */
static enum err kind_at(int bucket_fd, const char *path, unsigned type, enum kind *out)
{
    struct statx st;

    *out = type == DT_REG ? KIND_FILE : type == DT_DIR ? KIND_DIRECTORY : KIND_NONE;
    if (type != DT_LNK && type != DT_UNKNOWN)
        return OK;
    int result = dir_stat(bucket_fd, path, &st);
    if (result != 0)
        return dir_missing(result);
    *out = S_ISREG(st.stx_mode) ? KIND_FILE : S_ISDIR(st.stx_mode) ? KIND_DIRECTORY : KIND_NONE;
    return OK;
}

/* The entry of name as it sorts and is listed: appended to w->path behind the level's. *len 0: it
 * is not listed. */
static enum err place_entry(struct walk *w, const struct level *l, const struct dirent *d,
                            size_t *len)
{
    char path[DIR_PATH_BYTES];
    size_t n = strlen(d->d_name), end = l->path_len + n;
    enum kind kind;

    *len = 0;
    if (!is_segment(span_make(d->d_name, n)) || end > KEY_BYTES_MAX)
        return OK;
    memcpy(w->path + l->path_len, d->d_name, n);
    w->path[end] = '/';
    bool as_file = may_list(w, span_make(w->path, end), false),
        as_directory = may_list(w, span_make(w->path, end + 1), true);
    if (!as_file && !as_directory)
        return OK;                   /* before anything is asked of the disk */
    disk_path(w, end, path);
    w->followed = w->followed || d->d_type == DT_LNK || d->d_type == DT_UNKNOWN;
    TRY(kind_at(w->in.fd, path, d->d_type, &kind));
    if (kind == KIND_DIRECTORY && as_directory && end + 2 <= KEY_BYTES_MAX)
        *len = n + 1;
    else if (kind == KIND_FILE && as_file)
        *len = n;
    return OK;
}

/* The first name of a directory that may be listed behind the bound, of which the rest stands below
 * that directory: of a path on, its own directory, unless all of that is past. */
static void low_of_bound(struct span rest, bool past, struct text *out)
{
    size_t slash = span_find(rest, '/');
    bool inside = slash + 1 < rest.len || (slash < rest.len && !past);

    text_add(out, slash < rest.len ? span_make(rest.at, slash + 1) : rest);
    if (out->len == 0 || inside)
        return;
    uint8_t last = (uint8_t)out->at[out->len - 1];
    if (past && last < UINT8_MAX)    /* behind all that begins so */
        out->at[out->len - 1] = (char)(last + 1);
    else
        text_addc(out, '\0');
}

/* Of the level's names none before low may be listed, and of the others all that begin with
 * *prefix: what is kept holds for other lists, too. */
static void low_of(const struct walk *w, const struct level *l, struct span *prefix,
                   struct text *low)
{
    struct span own = span_make(w->path, l->path_len);
    char memory[KEY_BYTES_MAX + 3];
    struct text behind;

    *prefix = span_starts(prefix_of(w), own) ? span_from(prefix_of(w), l->path_len) : span_of("");
    if (w->bounded && span_starts(bound_of(w), own))
        low_of_bound(span_from(bound_of(w), l->path_len), w->past, low);
    text_init(&behind, memory, sizeof(memory));
    if (l->last) {
        text_add(&behind, span_make(l->last, l->last_len));
        text_addc(&behind, '\0');    /* no name is between */
    }
    if (span_compare(text_span(low), text_span(&behind)) < 0) {
        text_init(low, low->at, low->cap);
        text_add(low, text_span(&behind));
    }
    must(!behind.over && !low->over);
}

/* sync: a network file system asks its server. */
static enum err names_of(const struct walk *w, const struct level *l, int fd, bool sync,
                         struct names_of *out)
{
    struct statx st;

    memset(out, 0, sizeof(*out));
    int flags = AT_EMPTY_PATH | (sync ? AT_STATX_FORCE_SYNC : 0);
    if (statx(fd, "", flags, STATX_BASIC_STATS, &st) != 0)
        return dir_missing(-errno) == ERR_MEMORY ? ERR_MEMORY : ERR_UPSTREAM_CONNECT;
    *out = (struct names_of){
        .bucket_inode = w->bucket.stx_ino, .inode = st.stx_ino, .path_len = l->path_len,
        .changed_ns = (uint64_t)st.stx_ctime.tv_sec * 1000000000u + st.stx_ctime.tv_nsec,
        .modified_ns = (uint64_t)st.stx_mtime.tv_sec * 1000000000u + st.stx_mtime.tv_nsec,
        .bucket_major = w->bucket.stx_dev_major, .bucket_minor = w->bucket.stx_dev_minor,
        .major = st.stx_dev_major, .minor = st.stx_dev_minor};
    return OK;
}

static enum err read_names(struct walk *w, const struct level *l, DIR *dir, struct names *n)
{
    const struct dirent *d;
    enum err e = OK;
    size_t len;

    errno = 0;
    while (e == OK && (d = readdir(dir))) {
        e = is_unwanted(w) ? ERR_TIMEOUT : place_entry(w, l, d, &len);
        if (e == OK && len > 0)
            e = names_add(n, span_make(w->path + l->path_len, len));
        errno = 0;
    }
    if (e == OK && errno != 0)
        return ERR_UPSTREAM_CONNECT;
    if (e == OK)
        names_sort(n);
    return e;
}

/* The level's next batch, of sorted names. */
static enum err take_batch(struct walk *w, struct level *l, const struct names *n, struct span low,
                           size_t keep)
{
    l->more = names_more(n);
    for (size_t i = names_from(n, low); i < names_count(n); i++) {
        struct span name = names_get(n, i);
        memcpy(w->path + l->path_len, name.at, name.len);
        struct span path = span_make(w->path, l->path_len + name.len);
        if (!may_list(w, path, name.at[name.len - 1] == '/'))
            continue;
        l->more = l->more || l->count == keep;
        if (l->count == keep)
            return OK;
        l->batch[l->count] = (struct entry){mem_copy(name), name.len};
        if (!l->batch[l->count].name)
            return ERR_MEMORY;
        l->count++;
    }
    l->more = l->more && l->count > 0; /* who goes on goes on behind what was taken */
    return OK;
}

struct scan {                        /* one directory's names: which are wanted */
    struct names_of of;
    struct span prefix, low;
    size_t keep;
    bool shared;                     /* what follows may be kept for other pages */
};

/* Takes the directory over. */
static enum err scan_anew(struct walk *w, struct level *l, DIR *dir, const struct scan *s)
{
    struct names *n = names_make(s->shared ? w->in.kept : NULL, &s->of, s->prefix, s->low,
                                 s->shared ? SIZE_MAX : 2 * s->keep);
    struct names_of after;

    w->followed = false;
    enum err e = n ? read_names(w, l, dir, n) : ERR_MEMORY;
    if (e == OK)
        e = take_batch(w, l, n, s->low, s->keep);
    bool keeps = e == OK && l->more && s->shared && !w->followed;
    if (keeps)
        e = names_of(w, l, dirfd(dir), true, &after);
    closedir(dir);
    if (keeps && e == OK)
        names_keep(w->in.kept, n, &after);
    else
        names_free(n);
    return e;
}

/* *out: what is kept of it, if that still holds. */
static enum err find_kept(struct walk *w, const struct level *l, int fd, struct scan *s,
                          const struct names **out)
{
    *out = NULL;
    if (!s->shared)
        return OK;
    TRY(names_of(w, l, fd, false, &s->of));
    if ((w->resumed || l->last) && names_known(w->in.kept, &s->of)) {
        TRY(names_of(w, l, fd, true, &s->of));
        *out = names_find(w->in.kept, &s->of, s->prefix, s->low);
    }
    s->shared = names_are_settled(&s->of);
    return OK;
}

/* Takes the descriptor over. */
static enum err scan_open(struct walk *w, struct level *l, int fd, struct scan *s)
{
    const struct names *n;
    enum err e = find_kept(w, l, fd, s, &n);

    if (n)
        e = take_batch(w, l, n, s->low, s->keep);
    if (e != OK || n) {
        close(fd);
        return e;
    }
    DIR *dir = fdopendir(fd);
    if (!dir)
        close(fd);
    return dir ? scan_anew(w, l, dir, s) : ERR_MEMORY;
}

/* Fills the batch with the smallest names behind `last` and the bound. */
static enum err scan(struct walk *w, struct level *l)
{
    struct scan s = {.keep = w->depth <= DEEP ? BATCH : BATCH_DEEP,
                     .shared = w->in.kept && w->depth <= DEEP};
    char path[DIR_PATH_BYTES], memory[KEY_BYTES_MAX + 3];
    struct text low;

    free_batch(l);
    l->more = false;
    l->batch = mem_take(s.keep * sizeof(l->batch[0]));
    if (!l->batch)
        return ERR_MEMORY;
    text_init(&low, memory, sizeof(memory));
    low_of(w, l, &s.prefix, &low);
    s.low = text_span(&low);
    disk_path(w, l->path_len, path);
    int fd = dir_open(w->in.fd, path, O_RDONLY | O_DIRECTORY);
    /* gone meanwhile, or not for us: an empty one */
    return fd < 0 ? dir_missing(fd) : scan_open(w, l, fd, &s);
}

/* Enters the directory at w->path[0..len). Not there, or its own ancestor: nothing happens. */
static enum err push(struct walk *w, size_t len, bool read)
{
    char path[DIR_PATH_BYTES];
    struct statx st;

    if (w->depth == LEVELS_MAX)
        return OK;
    disk_path(w, len, path);
    int result = dir_stat(w->in.fd, path, &st);
    if (result != 0)
        return dir_missing(result);
    for (unsigned i = 0; i < w->depth; i++) {
        const struct level *l = &w->level[i];
        if (l->inode == st.stx_ino && l->major == st.stx_dev_major && l->minor == st.stx_dev_minor)
            return OK;
    }
    struct level *l = &w->level[w->depth++];
    *l = (struct level){.path_len = len, .inode = st.stx_ino, .major = st.stx_dev_major,
        .minor = st.stx_dev_minor};
    return read ? scan(w, l) : OK;
}

/* ---- groups ---- */

/* Length of the common prefix that a path belongs to; 0: none. */
static size_t group_len(const struct walk *w, struct span path)
{
    if (w->delimiter_len == 0 || path.len <= w->prefix_len)
        return 0;
    const char *found = memmem(path.at + w->prefix_len, path.len - w->prefix_len, w->delimiter,
                               w->delimiter_len);
    return found ? (size_t)(found - path.at) + w->delimiter_len : 0;
}

static void set_bound(struct walk *w, struct span at, bool past)
{
    must(at.len < sizeof(w->bound));
    memmove(w->bound, at.at, at.len);
    w->bound_len = at.len;
    w->bounded = true;
    w->past = past;
}

struct look {                        /* directories still to be looked into */
    char *path[LOOK_MAX];
    unsigned count, seen;
    bool found;
};

static enum err look_at(int bucket_fd, struct look *k, const char *path, const struct dirent *d)
{
    char below[DIR_PATH_BYTES];
    enum kind kind = KIND_NONE;
    struct text t;

    if (!is_segment(span_of(d->d_name)))
        return OK;
    text_init(&t, below, sizeof(below));
    text_addf(&t, "%s/%s", path, d->d_name);
    if (!t.over)
        TRY(kind_at(bucket_fd, below, d->d_type, &kind));
    k->found = kind == KIND_FILE || (kind == KIND_DIRECTORY && k->count == LOOK_MAX);
    if (kind != KIND_DIRECTORY || k->found)
        return OK;
    k->path[k->count] = mem_copy(span_of(below));
    return k->path[k->count++] ? OK : ERR_MEMORY;
}

static enum err look_into(int bucket_fd, struct look *k, const char *path)
{
    int fd = dir_open(bucket_fd, path, O_RDONLY | O_DIRECTORY);
    const struct dirent *d;
    enum err e = OK;

    if (fd < 0)
        return dir_missing(fd);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return ERR_MEMORY;
    }
    errno = 0;
    while (e == OK && !k->found && (d = readdir(dir))) {
        e = look_at(bucket_fd, k, path, d);
        errno = 0;
    }
    if (e == OK && !k->found && errno != 0)
        e = ERR_UPSTREAM_CONNECT;
    closedir(dir);
    return e;
}

/* Is there any file below? A tree too large to tell is taken for one that has some. */
static enum err has_file(const struct walk *w, const char *path, bool *out)
{
    struct look *k = mem_take(sizeof(*k));

    if (!k)
        return ERR_MEMORY;
    k->path[k->count] = mem_copy(span_of(path));
    enum err e = k->path[k->count++] ? OK : ERR_MEMORY;
    while (k->count) {
        char *next = k->path[--k->count];
        if (e == OK && is_unwanted(w))
            e = ERR_TIMEOUT;
        if (e == OK && !k->found && k->seen++ < LOOK_MAX)
            e = look_into(w->in.fd, k, next);
        mem_give(next);
    }
    *out = k->found || k->seen > LOOK_MAX;
    mem_give(k);
    return e;
}

/* ---- the walk ---- */

struct walk *walk_open(const struct dir_place *bucket, struct span prefix, struct span delimiter)
{
    must(prefix.len <= KEY_BYTES_MAX && delimiter.len <= KEY_BYTES_MAX);
    struct walk *w = mem_take(sizeof(*w));
    if (!w)
        return NULL;
    w->in = *bucket;
    w->prefix_len = prefix.len;
    w->delimiter_len = delimiter.len;
    memcpy(w->prefix, prefix.len ? prefix.at : "", prefix.len);
    memcpy(w->delimiter, delimiter.len ? delimiter.at : "", delimiter.len);
    return w;
}

void walk_close(struct walk *w)
{
    if (!w)
        return;
    while (w->depth)
        pop(w);
    mem_give(w);
}

void walk_after_key(struct walk *w, struct span key)
{
    size_t group = span_starts(key, prefix_of(w)) ? group_len(w, key) : 0;
    set_bound(w, group ? span_make(key.at, group) : key, group != 0);
    w->resumed = true;
}

void walk_after_prefix(struct walk *w, struct span prefix)
{
    set_bound(w, prefix, true);
    w->resumed = true;
}

/* Goes to the directory that the prefix names; those on the way count as ancestors only. */
static enum err start(struct walk *w)
{
    struct span rest = prefix_of(w);
    size_t slash;

    w->started = true;
    if (w->in.kept && statx(w->in.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &w->bucket) != 0)
        return dir_missing(-errno) == ERR_MEMORY ? ERR_MEMORY : ERR_UPSTREAM_CONNECT;
    while ((slash = span_find(rest, '/')) < rest.len) {
        size_t at = (size_t)(rest.at - w->prefix);
        if (!is_segment(span_make(rest.at, slash)))
            return OK;               /* no key begins so */
        memcpy(w->path, w->prefix, at);
        unsigned depth = w->depth;
        TRY(push(w, at, false));
        if (w->depth == depth)
            return OK;
        rest = span_from(rest, slash + 1);
    }
    size_t at = (size_t)(rest.at - w->prefix);
    memcpy(w->path, w->prefix, at);
    bool any = may_list(w, span_make(w->path, at), true);
    return any ? push(w, at, true) : OK; /* else all of it is before the bound */
}

static enum err take_file(struct walk *w, size_t len, struct walk_item *out, bool *found)
{
    char path[DIR_PATH_BYTES];
    struct statx st;

    disk_path(w, len, path);
    int result = dir_stat(w->in.fd, path, &st);
    if (result != 0)
        return dir_missing(result);
    if (!S_ISREG(st.stx_mode))
        return OK;                   /* another one meanwhile */
    out->key = span_make(w->path, len);
    out->prefix = false;
    out->size = st.stx_size;
    out->modified_ms = (uint64_t)st.stx_mtime.tv_sec * 1000 + st.stx_mtime.tv_nsec / 1000000;
    dir_etag(&st, out->etag);
    set_bound(w, out->key, false);
    *found = true;
    return OK;
}

static enum err take_group(struct walk *w, size_t len, size_t group, struct walk_item *out,
                           bool *found)
{
    char path[DIR_PATH_BYTES];
    bool any = true;

    if (w->path[len - 1] == '/') {
        disk_path(w, len, path);
        TRY(has_file(w, path, &any));
    }
    if (!any)
        return OK;
    *out = (struct walk_item){.key = span_make(w->path, group), .prefix = true};
    set_bound(w, out->key, true);
    *found = true;
    return OK;
}

/* The next entry of the deepest directory: an item, a directory to enter, or nothing. */
static enum err take_entry(struct walk *w, struct level *l, struct walk_item *out, bool *found)
{
    struct entry *e = &l->batch[l->at++];
    size_t len = l->path_len + e->len;

    mem_give(l->last);
    l->last = e->name;
    l->last_len = e->len;
    e->name = NULL;
    memcpy(w->path + l->path_len, l->last, l->last_len);
    struct span path = span_make(w->path, len);
    bool directory = w->path[len - 1] == '/';
    if (!may_list(w, path, directory))
        return OK;                   /* the bound moved on */
    size_t group = group_len(w, path);
    if (group)
        return take_group(w, len, group, out, found);
    return directory ? push(w, len, true) : take_file(w, len, out, found);
}

enum err walk_next(struct walk *w, struct walk_item *out, bool *more)
{
    bool found = false;
    unsigned floor;

    if (!w->started)
        TRY(start(w));
    for (floor = 0; floor < w->depth && !w->level[floor].batch;)
        floor++;                     /* ancestors of the prefix are never read */
    while (!found && w->depth > floor) {
        if (is_unwanted(w))
            return ERR_TIMEOUT;
        struct level *l = &w->level[w->depth - 1];
        if (l->at < l->count)
            TRY(take_entry(w, l, out, &found));
        else if (l->more)
            TRY(scan(w, l));
        else
            pop(w);
    }
    *more = found;
    return OK;
}
