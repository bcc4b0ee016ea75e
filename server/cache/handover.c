/* Records on their way from the child that reads an index to the threads that load it.
 *
 * A few segments of memory that both processes share, and a pair of sockets: the child sends the
 * number of each segment that is full, the parent sends back those that it has loaded.
 *
 * Invariants:
 *  1. A segment belongs to the writer in the child that opened it until its number was sent, then
 *     to the thread that took it.
 *  2. All records of a segment are of one sub-database, and those of one sub-database are loaded
 *     before the first of the next is handed out: a chunk finds its object.
 *  3. What stands in a segment was read from a file that may be damaged: lengths are verified here,
 *     all else where it is loaded.
 *  4. The end of the stream without the child's last word means that it died, found disorder, or
 *     was late: what came until then must not be used.
 *
 * Life: handover_make(), fork(), handover_to_parent() in the child and handover_from_child() in the
 * parent; handover_end() when the child had time to end, or to give up.
 * Failure: see 4; late is who lets the parent wait for longer than it may, not who waits for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/cache/start.h"

enum {
    SEGMENT_BYTES = MIB,             /* each costs both processes a wait or two */
    SEGMENTS = 12,                   /* together less than a processor's last cache */
    RECORD_ALIGN = 8,
    AHEAD_BYTES = 2 * KIB,           /* what is fetched from the other process's caches before */
    KEY_KEPT = CHANGE_KEY_BYTES + 1, /* of a longer key: enough to see that it is too long */
};
enum token { TOKEN_FACTS = 0xfd, TOKEN_SOUND = 0xfe, TOKEN_NONE = 0xff };
_Static_assert((int)SEGMENTS < (int)TOKEN_FACTS, "a token tells a segment from the rest");

struct record_head {
    uint32_t value_len;
    uint16_t key_len;
    uint16_t verified;
};
struct segment {
    uint32_t used;
    uint32_t db;
    uint8_t bytes[SEGMENT_BYTES - 8];
};
_Static_assert(sizeof(struct record_head) + KEY_KEPT + RECORD_BYTES_MAX + 2 * RECORD_ALIGN <
               sizeof ((struct segment *)0)->bytes, "any record fits");

struct shared {
    struct index_facts facts;
    struct segment segment[SEGMENTS];
};

struct handover {
    struct shared *shared;
    int end[2];                      /* the parent's, the child's */
    _Atomic uint32_t fresh;          /* the child's: segments that were used; counts on behind */
    /* the parent's */
    pid_t child;
    pthread_mutex_t lock;            /* of what follows */
    pthread_cond_t idle;
    uint64_t wait_ms;                /* how long the child may still let us wait */
    uint32_t db, busy;               /* what is being loaded, by how many */
    bool over, sound;
};

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

struct handover *handover_make(void)
{
    struct handover *h = mem_take(sizeof *h);

    if (!h)
        return NULL;
    h->end[0] = h->end[1] = -1;
    h->shared = mmap(NULL, sizeof *h->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    bool made = h->shared != MAP_FAILED &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, h->end) == 0;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->idle, NULL);
    if (made)
        return h;
    (void)handover_end(h);
    return NULL;
}

/* ---- the child ---- */
void handover_to_parent(struct handover *h)
{
    close_end(&h->end[0]);
}

static bool send_byte(int fd, uint8_t byte)
{
    ssize_t n;

    do
        n = send(fd, &byte, 1, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

bool handover_flush(struct handover_writer *w)
{
    struct segment *s = w->open;

    w->open = NULL;
    return !s || send_byte(w->h->end[1], (uint8_t)(s - w->h->shared->segment));
}

static bool open_segment(struct handover_writer *w, enum journal_db db)
{
    struct handover *h = w->h;
    uint32_t fresh = atomic_fetch_add(&h->fresh, 1);
    uint8_t number = (uint8_t)fresh;
    ssize_t n = 1;

    if (fresh >= SEGMENTS) {
        atomic_store(&h->fresh, SEGMENTS);
        do
            n = read(h->end[1], &number, 1);
        while (n < 0 && errno == EINTR);
    }
    if (n != 1 || number >= SEGMENTS)
        return false;
    w->open = &h->shared->segment[number];
    w->open->used = 0;
    w->open->db = db;
    return true;
}

bool handover_facts(struct handover *h, const struct index_facts *f)
{
    h->shared->facts = *f;
    return send_byte(h->end[1], TOKEN_FACTS);
}

bool handover_put(struct handover_writer *w, enum journal_db db, const struct handed *r)
{
    struct record_head head = {
        .value_len = r->value.len <= RECORD_BYTES_MAX ? (uint32_t)r->value.len : 0,
        .key_len = (uint16_t)min_u64(r->key.len, KEY_KEPT),
        .verified = r->verified,
    };
    size_t bytes = round_up(sizeof head + head.key_len + head.value_len, RECORD_ALIGN);

    if (w->open && (w->open->db != db || w->open->used + bytes > sizeof w->open->bytes) &&
        !handover_flush(w))
        return false;
    if (!w->open && !open_segment(w, db))
        return false;
    uint8_t *at = w->open->bytes + w->open->used;
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, r->key.at, head.key_len);
    if (head.value_len)
        memcpy(at + sizeof head + head.key_len, r->value.at, head.value_len);
    w->open->used += (uint32_t)bytes;
    return true;
}

bool handover_sound(struct handover *h)
{
    return send_byte(h->end[1], TOKEN_SOUND);
}

/* ---- the parent ---- */
void handover_from_child(struct handover *h, pid_t child, uint64_t wait_ms)
{
    close_end(&h->end[1]);
    h->child = child;
    h->wait_ms = wait_ms;
}

/* TOKEN_NONE: there is none any more, or not in time. */
static uint8_t next_token(struct handover *h)
{
    struct pollfd end = {.fd = h->end[0], .events = POLLIN};
    uint8_t token;
    ssize_t n = -1;

    while (n < 0) {
        uint64_t began = clock_ms();
        int ready = poll(&end, 1, (int)min_u64(h->wait_ms, INT32_MAX));
        h->wait_ms -= min_u64(clock_ms() - began, h->wait_ms);
        if (ready == 0 || (ready < 0 && errno != EINTR))
            return TOKEN_NONE;
        if (ready > 0)
            n = read(end.fd, &token, 1);
        if (n < 0 && errno != EINTR)
            return TOKEN_NONE;
    }
    return n == 1 ? token : TOKEN_NONE;
}

bool handover_wait_facts(struct handover *h, struct index_facts *out)
{
    if (next_token(h) != TOKEN_FACTS)
        return false;
    *out = h->shared->facts;
    out->why[sizeof out->why - 1] = '\0';
    return true;
}

const struct segment *handover_take(struct handover *h)
{
    const struct segment *s = NULL;

    pthread_mutex_lock(&h->lock);
    uint8_t token = h->over ? TOKEN_NONE : next_token(h);
    if (!h->over && token >= SEGMENTS) {
        h->over = true;
        h->sound = token == TOKEN_SOUND;
    }
    if (!h->over) {
        s = &h->shared->segment[token];
        while (h->busy > 0 && h->db != s->db)
            pthread_cond_wait(&h->idle, &h->lock);
        h->db = s->db;
        h->busy++;
    }
    pthread_mutex_unlock(&h->lock);
    return s;
}

void handover_give(struct handover *h, const struct segment *s)
{
    pthread_mutex_lock(&h->lock);
    if (--h->busy == 0)
        pthread_cond_broadcast(&h->idle);
    pthread_mutex_unlock(&h->lock);
    /* If the child is gone, the next look at the stream will tell. */
    (void)send_byte(h->end[0], (uint8_t)(s - h->shared->segment));
}

void handover_stop(struct handover *h)
{
    pthread_mutex_lock(&h->lock);
    h->over = true;
    pthread_mutex_unlock(&h->lock);
}

enum journal_db handover_db(const struct segment *s)
{
    return s->db < JOURNAL_DBS ? (enum journal_db)s->db : JOURNAL_STATE;
}

bool handover_next(const struct segment *s, uint32_t *at, struct handed *out)
{
    struct record_head head;
    uint32_t used = (uint32_t)min_u64(s->used, sizeof s->bytes);

    if (*at > used || used - *at < sizeof head)
        return false;
    const uint8_t *from = s->bytes + *at;
    memcpy(&head, from, sizeof head);
    uint64_t bytes = round_up(sizeof head + (uint64_t)head.key_len + head.value_len, RECORD_ALIGN);
    if (bytes > used - *at)
        return false;
    mem_expect(from + AHEAD_BYTES, bytes);
    out->key = span_make(from + sizeof head, head.key_len);
    out->value = span_make(from + sizeof head + head.key_len, head.value_len);
    out->verified = head.verified;
    *at += (uint32_t)bytes;
    return true;
}

bool handover_was_sound(const struct handover *h)
{
    return h->sound;
}

bool handover_end(struct handover *h)
{
    bool sound = h->sound;
    int status = 0;

    if (!sound && h->child > 0)
        kill(h->child, SIGKILL);
    while (h->child > 0 && waitpid(h->child, &status, 0) < 0 && errno == EINTR)
        ;
    close_end(&h->end[0]);
    close_end(&h->end[1]);
    if (h->shared != MAP_FAILED)
        munmap(h->shared, sizeof *h->shared);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->idle);
    mem_give(h);
    return sound && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
