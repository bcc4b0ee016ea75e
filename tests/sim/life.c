/* The server inside the simulation: its birth and death as main.c has them, without signals and
 * without the admin part; and what it must not hold when nothing runs.
 *
 * Invariants:
 *  1. Parts are born and die in main.c's order.
 *  2. The cache's directory lives as long as the process wants: a life can follow a life.
 *
 * Life: life_begin() .. life_end(), any number of times. Failure: a birth that fails ends the run.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/packed.h"
#include "mem.h"
#include "server/jobs/jobs.h"
#include "server/origin/inside.h"
#include "server/s3/s3.h"
#include "sign.h"
#include "tests/sim/sim.h"
#include "xml.h"

enum {
    RECV_BUFFERS = 64,
    SETTLE_EVERY_MS = 20,
    JOB_WAIT_MS = 60 * 1000,
    FILES_OPEN = 16,
    FLAGS_MAX = 40,
    MEND_S_MAX = 400,
};

static struct server server;
static struct config *config;
static bool up, draining;
static unsigned base_fds, base_socks;

/* ---- files ---- */

static char dir[200];

const char *life_dir(void)
{
    if (!dir[0]) {
        const char *below = getenv("TMPDIR");
        bool memory = !below && access("/dev/shm", W_OK) == 0;
        snprintf(dir, sizeof dir, "%s/headpond-sim-XXXXXX",
                 below ? below : memory ? "/dev/shm" : "/tmp");
        must(mkdtemp(dir));
    }
    return dir;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *ftw)
{
    (void)s;
    (void)type;
    (void)ftw;
    return remove(path);
}

void life_remove_files(void)
{
    must(!up);
    if (dir[0])
        nftw(dir, remove_one, FILES_OPEN, FTW_DEPTH | FTW_PHYS);
    dir[0] = '\0';
}

static unsigned open_files(void)
{
    DIR *fds = opendir("/proc/self/fd");
    unsigned count = 0;

    must(fds);
    while (readdir(fds))
        count++;
    closedir(fds);
    return count;
}

/* ---- configuration ---- */

/* Values that are places of this run. */
static const char *make_place(const char *value)
{
    static char keys[256], tree[256];

    if (strcmp(value, "sim-keys") == 0) {
        snprintf(keys, sizeof keys, "%s/keys", life_dir());
        int fd = open(keys, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        must(fd >= 0 && dprintf(fd, "LOCALKEY localsecretlocalsecret ro\n"
                                    "SCOPEDKEY scopedsecretscopedsecret ro b\n") > 0);
        close(fd);
        return keys;
    }
    if (strcmp(value, "sim-directory") == 0) {
        snprintf(tree, sizeof tree, "%s/tree", life_dir());
        mkdir(tree, 0700);
        snprintf(tree, sizeof tree, "file://%s/tree", life_dir());
        return tree;
    }
    if (strcmp(value, "sim-cert") == 0 || strcmp(value, "sim-key") == 0)
        return seal_file(strcmp(value, "sim-key") == 0);
    if (strcmp(value, "sim-https") == 0) {
        snprintf(tree, sizeof tree, "https://127.0.0.1:%u", seal_front());
        return tree;
    }
    return value;
}

/* What stands there is the simulation's own: its threads and sockets are not of the birth. */
static const char *place_of(const char *value)
{
    bool birth = world.birth;

    world.birth = false;
    sim_enter();
    const char *place = make_place(value);
    sim_leave();
    world.birth = birth;
    return place;
}

/* Two places to the server, as their addresses differ; sockets of the simulation know ports. */
static const char *several_upstreams(void)
{
    static const char sections[] =
        "[[upstream]]\nname = 'main'\nendpoint = 'http://127.0.0.1:%u'\n"
        "[[upstream]]\nname = 'other'\nendpoint = 'http://127.0.0.2:%u'\nmatch = ['o-*']\n%s"
        "[[upstream]]\nname = 'renamed'\nendpoint = 'http://127.0.0.2:%u'\nmatch = ['near']\n"
        "bucket = 'far'\n%s",
        options[] = "connections = 8\nretries = 2\nread_timeout = '3s'\n";
    static char path[256];

    snprintf(path, sizeof path, "%s/conf.toml", life_dir());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && dprintf(fd, sections, store_port(), store_port(), options, store_port(),
                            options) > 0);
    close(fd);
    return path;
}

static const char *write_sections(const char *text)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/conf.toml", life_dir());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && dprintf(fd, "%s", text) > 0);
    close(fd);
    return path;
}

static enum err configure(const struct life *l, char why[512])
{
    static char cache[256], endpoint[64], memory[32], workers[16];
    static struct conf_mistakes mistakes;
    static char *const nothing[] = {NULL};
    struct conf_flag flag[FLAGS_MAX] = {
        {"cache.dirs", cache}, {"upstream.endpoint", endpoint}, {"cache.memory", memory},
        {"server.workers", workers}, {"server.listen", "127.0.0.1:9000"},
        {"cache.size", "128MiB"}, {"cache.min_free", "0"}, {"server.allow_root", "true"},
        {"upstream.connections", "8"}, {"upstream.retries", "2"}, {"log.access", "all"},
        {"upstream.read_timeout", "3s"}, {"server.congestion", ""}, {"server.name", "sim"},
        {"cache.scrub", "0"}, /* it would hold what is accounted for */
    };
    unsigned count = 15;

    snprintf(cache, sizeof cache, "%s/cache", life_dir());
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u", store_port());
    snprintf(memory, sizeof memory, "%lluMiB",
             (unsigned long long)(l->cache_memory ? l->cache_memory / MIB : 64));
    snprintf(workers, sizeof workers, "%u", l->workers ? l->workers : 1);
    for (unsigned i = 0; i < ARRAY_COUNT(l->set) && l->set[i][0]; i++) {
        unsigned at = 0;
        while (at < count && strcmp(flag[at].key, l->set[i][0]) != 0)
            at++;
        flag[at] = (struct conf_flag){l->set[i][0], place_of(l->set[i][1])};
        count += at == count;
    }
    const char *file = l->several ? several_upstreams() : NULL;
    file = l->sections ? write_sections(l->sections) : file;
    enum err e = conf_load(file, nothing, flag, count, &config, &mistakes);
    if (e != OK && mistakes.count > 0)
        snprintf(why, 512, "%s", mistakes.item[0].text);
    return e;
}

/* ---- birth, as in main.c ---- */

static enum err core_born(struct core *c)
{
    TRY(cache_core_begin(c));
    TRY(s3_core_begin(c));
    TRY(origin_core_begin(c));
    TRY(fill_core_begin(c));
    return net_core_begin(c);
}

static void core_drains(struct core *c)
{
    jobs_core_drain(c);
    plans_core_drain(c);
    net_core_drain(c);
    fill_core_drain(c);
    origin_core_drain(c);
}

static bool core_is_idle(struct core *c)
{
    return net_core_idle(c) && jobs_core_idle(c) && plans_core_idle(c) && fill_core_idle(c) &&
        origin_core_idle(c);
}

static void core_dies(struct core *c)
{
    net_core_end(c);
    fill_core_end(c);
    origin_core_end(c);
    s3_core_end(c);
    cache_core_end(c);
}

static enum err name_stores(struct server *s)
{
    snprintf(s->name, sizeof s->name, "sim");
    snprintf(s->via, sizeof s->via, "sim-00000000");
    if (config->upstream_count > 1)
        return server_name_stores(s);
    snprintf(s->store[0], sizeof s->store[0], "sim:%s", config->upstream[0].endpoint);
    s->store_count = 1;
    return OK;
}

static const struct plan_ops plan_ops = {.make = plan_body_make, .take = plan_body_take,
                                         .leave = plan_body_free, .post = plan_text_post,
                                         .tell = plan_text, .drop = plan_text_drop};

static enum err begin_parts(struct server *s, char why[512])
{
    for (unsigned i = 0; i < s->core_count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        metric_name_label(NAMED_WORKER, number);
    }
    static struct conf_mistakes mistakes;

    if (settings_open(s, &mistakes) != OK) {
        snprintf(why, 512, "%s", mistakes.item[0].text);
        return ERR_CONFIG;
    }
    TRY(cache_open(s, why, &s->cache));
    for (unsigned i = 0; i < config->upstream_count; i++)
        TRY(origin_open(s, i, why));
    TRY(fills_open(s));
    TRY(net_open(s, &s3_request_ops, why));
    s->plan_ops = &plan_ops;
    TRY(desk_open(s));
    struct core_plan plan = {.server = s, .recv_buffers = RECV_BUFFERS, .begin = core_born,
                             .drain = core_drains, .idle = core_is_idle, .end = core_dies};
    for (unsigned i = 0; i < s->core_count; i++) {
        struct core_start_error refused;
        plan.number = i;
        enum err e = core_start(&plan, &s->core[i], &refused);
        if (e != OK) {
            snprintf(why, 512, "%.500s", refused.text);
            return e;
        }
    }
    TRY(jobs_open(s));
    return plans_open(s);
}

/* ---- jobs ---- */
bool life_job(unsigned kind, const char *prefix, struct job_view *out)
{
    struct job_spec spec = {.kind = (enum job_kind)kind};
    uint64_t id, until_us = world.now_us + JOB_WAIT_MS * 1000ULL;

    snprintf(spec.prefix, sizeof spec.prefix, "%s", prefix);
    if (jobs_add(&server, &spec, NULL, &id) != OK)
        return false;
    while (jobs_view(&server, id, out) && !job_state_is_over(out->state) &&
           world.now_us < until_us)
        sim_wait_ms(SETTLE_EVERY_MS);
    if (!job_state_is_over(out->state))
        sim_fail("a job does not end");
    return true;
}

static bool add_keys(struct plan *p, const char *keys)
{
    struct span rest = span_of(keys);
    bool good = true;

    while (rest.len > 0 && good) {
        const struct plan_item item = {.key = span_cut(&rest, ' ')};
        good = plans_add(p, &item) == OK;
    }
    return good;
}

bool life_plan(const char *bucket, const char *keys, uint64_t *id)
{
    enum { QUIET_MS = 1000 };
    struct plan_facts facts = {.job = "sim", .expires_s = 3600};
    static struct plan_view view;
    struct plan *p;

    snprintf(facts.prefix, sizeof facts.prefix, "%s", bucket);
    if (plans_begin(&server, &facts, &p) != OK)
        return false;
    if (!add_keys(p, keys)) {
        plans_give_up(p);
        return false;
    }
    if (plans_post(&server, p, NULL, &view) != OK)
        return false;
    *id = view.id;
    sim_wait_ms(QUIET_MS);
    return true;
}

bool life_plan_view(uint64_t id, struct plan_view *out)
{
    return plans_view(&server, id, out);
}

void life_plans_drop(void)
{
    uint64_t id[PLANS_MAX];
    unsigned count = plans_list(&server, id);

    for (unsigned i = 0; i < count; i++)
        life_plan_drop(id[i]);
}

bool life_plan_drop(uint64_t id)
{
    return plans_drop(&server, id) == OK;
}

static enum err begin_server(const struct life *l, char why[512])
{
    struct server *s = &server;

    TRY(configure(l, why));
    *s = (struct server){.config = config, .started_ms = clock_ms(),
                         .started_wall_s = clock_wall_s()};
    log_setup((enum log_level)config->log_level, (enum log_format)config->log_format);
    TRY(sign_setup());
    TRY(xml_setup());
    s->core_count = config->server_workers;
    s->core = mem_take(s->core_count * sizeof(*s->core));
    if (!s->core)
        return ERR_MEMORY;
    TRY(name_stores(s));
    world.birth = true;
    enum err e = begin_parts(s, why);
    world.birth = false;
    return e;
}

bool life_try(const struct life *l)
{
    char why[512] = "";

    must(!up);
    enum err e = begin_server(l, why);
    if (e != OK && (world.verbose || !inject_fired()))
        fprintf(stderr, "%s: %s\n", err_text(e), why);
    if (e != OK)
        return false;
    atomic_store(&server.state, SERVER_READY);
    up = true;
    draining = false;
    return true;
}

void life_begin(const struct life *l)
{
    if (!life_try(l))
        sim_fail("the server could not start");
    sim_wait_ms(10);
    base_fds = open_files();
    base_socks = wire_open_count();
}

bool life_is_up(void)
{
    return up;
}

bool life_is_sealed(void)
{
    return up && config->server_tls_cert[0];
}

/* ---- death ---- */

void life_drain(void)
{
    atomic_store(&server.state, SERVER_DRAINING);
    for (unsigned i = 0; i < server.core_count; i++)
        core_stop(server.core[i]);
    draining = true;
}

static bool ended(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < server.core_count; i++)
        if (!core_ended(server.core[i]))
            return false;
    return true;
}

void life_end(void)
{
    struct server *s = &server;

    if (!draining)
        life_drain();
    sim_block(ended, NULL, world.now_us + config->server_drain_timeout * 1000);
    for (unsigned i = 0; i < s->core_count && !ended(NULL); i++)
        core_cut(s->core[i]);
    for (unsigned i = 0; i < s->core_count; i++)
        core_join(s->core[i]);
    desk_close(s);
    net_close(s);
    plans_close(s);
    jobs_close(s);
    fills_close(s);
    for (unsigned i = config->upstream_count; i-- > 0;)
        origin_close(s->origin[i]);
    cache_close(s->cache);
    for (unsigned i = 0; i < s->core_count; i++)
        core_free(s->core[i]);
    mem_give(s->core);
    settings_close(s);
    conf_give(config);
    up = false;
}

/* libxml2's state of a thread is never refused: it has no way to survive that, and the server asks
 * for room right before (xml_setup_thread()), which is refused instead. */
void *__real_xmlGetGlobalState(void);
void *__wrap_xmlGetGlobalState(void);

void *__wrap_xmlGetGlobalState(void)
{
    sim_enter();
    void *state = __real_xmlGetGlobalState();
    sim_leave();
    return state;
}

/* ---- is it quiet ---- */

static bool asks_nobody(struct core *c)
{
    for (unsigned u = 0; u < config->upstream_count; u++) {
        const struct origin_part *part = origin_part(c, u);
        if (!list_empty(&part->errands_alive) || !list_empty(&part->keeper.dying))
            return false;
    }
    return true;
}

static bool is_quiet(void)
{
    struct cache_status status;
    struct server *s = &server;
    uint64_t limbo = 0;

    for (unsigned i = 0; i < s->core_count; i++) {
        const struct net_core *n = s->core[i]->net;
        if (!list_empty(&n->conns) || !fill_core_idle(s->core[i]) || !asks_nobody(s->core[i]))
            return false;
    }
    cache_status(s->cache, &status);
    for (unsigned i = 0; i < s->cache->dir_count; i++)
        limbo += atomic_load(&s->cache->dir[i].limbo_bytes);
    return status.dirty_entries == 0 && limbo == 0;
}

bool life_settle(uint64_t within_ms)
{
    uint64_t until_us = world.now_us + within_ms * 1000;

    while (!is_quiet() && world.now_us < until_us)
        sim_wait_ms(SETTLE_EVERY_MS);
    return is_quiet();
}

/* SLABS=1: large objects lie in slabs, as in release builds. Sanitised ones allocate each alone. */
void __real_stock_init(struct stock *s, size_t object_bytes, uint32_t max);
void __wrap_stock_init(struct stock *s, size_t object_bytes, uint32_t max);

void __wrap_stock_init(struct stock *s, size_t object_bytes, uint32_t max)
{
    __real_stock_init(s, object_bytes, max);
    if (getenv("SLABS"))
        s->paged = object_bytes >= STOCK_LARGE_BYTES;
}

static void cool_upstream(unsigned number)
{
    throttle_init(&server.origin[number]->throttle, config->upstream[number].connections);
    for (unsigned i = 0; i < server.core_count; i++) {
        struct origin_part *p = origin_part(server.core[i], number);
        struct stock *stocks[] = {&p->errands, &p->sheets, &p->links, &p->dirs};
        for (unsigned k = 0; k < ARRAY_COUNT(stocks); k++)
            stock_trim(stocks[k]);
    }
}

void life_cool(void)
{
    for (unsigned u = 0; u < config->upstream_count; u++)
        cool_upstream(u);
    for (unsigned i = 0; i < server.core_count; i++) {
        struct net_core *n = server.core[i]->net;
        struct fill_core *f = server.core[i]->fill;
        struct stock *stocks[] = {&n->conn_stock, &n->request_stock, &n->big_stock,
                                  &n->sealed_stock, &n->small_sealed_stock,
                                  &f->fetch_stock, &f->contact_stock};
        for (unsigned k = 0; k < ARRAY_COUNT(stocks); k++)
            stock_trim(stocks[k]);
    }
}

/* ---- reaching into the cache ---- */

void life_forget_memory(void)
{
    struct buffer *held[1024];
    unsigned count = 0;

    while (count < ARRAY_COUNT(held) &&
           (held[count] = pool_take(server.cache, BLOCK_BYTES, BUFFER_DEMAND)))
        count++;
    while (count > 0)
        pool_give(server.cache, held[--count]);
}

unsigned life_disk_state(void)
{
    struct cache_status status;

    cache_status(server.cache, &status);
    must(status.disk_count == 1);
    return status.disk[0].state;
}

void life_mend(void)
{
    uint64_t until_us = world.now_us + 1000 * MEND_S_MAX * (uint64_t)1000;

    while (life_disk_state() != DISK_UP) {
        if (world.now_us > until_us)
            sim_fail("a disk does not come back");
        sim_wait_ms(500);
    }
}

struct core *life_core(void)
{
    return server.core[0];
}

static struct object *find(const char *bucket, const char *key)
{
    struct okey k = {.bucket = span_of(bucket), .key = span_of(key), .version = span_of("")};

    cache_key(server.cache, &k);
    return cache_find(server.cache, &k);
}

static uint8_t present_of(const struct object *o, uint64_t number, struct slot *slot)
{
    struct chunk *k = chunk_find(server.cache, o->data_id, number);
    uint8_t present = k ? atomic_load(&k->present) : 0;

    if (k) {
        *slot = k->slot;
        chunk_drop(server.cache, k);
    }
    return present;
}

bool life_on_disk(const char *bucket, const char *key)
{
    struct object *o = find(bucket, key);
    struct slot slot;
    bool there = o && present_of(o, 0, &slot) & 1;

    if (o)
        object_drop(server.cache, o);
    return there;
}

void life_damage(const char *bucket, const char *key)
{
    struct object *o = find(bucket, key);
    char path[300];
    struct slot slot;

    if (!o)
        return;
    snprintf(path, sizeof path, "%s/cache/slab", life_dir());
    int fd = open(path, O_RDWR | O_CLOEXEC);
    must(fd >= 0);
    for (uint64_t number = 0; number * CHUNK_BYTES < o->size; number++) {
        uint8_t present = present_of(o, number, &slot), byte;
        for (unsigned b = 0; b < BLOCKS_PER_CHUNK && present; b++) { /* else it has no slot */
            off_t at = (off_t)(slot_offset(slot) + (uint64_t)b * BLOCK_BYTES + 7);
            if (!(present >> b & 1) || pread(fd, &byte, 1, at) != 1)
                continue;
            byte ^= 0x10;
            must(pwrite(fd, &byte, 1, at) == 1);
        }
    }
    close(fd);
    object_drop(server.cache, o);
}

/* ---- accounts ---- */

static void expect(struct text *out, const char *what, uint64_t is, uint64_t should)
{
    if (is != should)
        text_addf(out, " %s=%llu(%llu)", what, (unsigned long long)is, (unsigned long long)should);
}

static unsigned count_idle(const struct origin_part *p)
{
    unsigned count = 0;

    LIST_EACH(&p->idle, struct link, node, l)
        count++;
    return count;
}

static void account_core(struct text *out, const struct core *c)
{
    const struct net_core *n = c->net;
    const struct fill_core *f = c->fill;

    expect(out, "conns", n->conn_stock.out, 0);
    expect(out, "requests", n->request_stock.out, 0);
    expect(out, "big_heads", n->big_stock.out, 0);
    expect(out, "sealed", n->sealed_stock.out + n->small_sealed_stock.out, 0);
    expect(out, "fetches", f->fetch_stock.out, 0);
    expect(out, "contacts", f->contact_stock.out, 0);
}

static void account_part(struct text *out, const struct origin_part *p)
{
    expect(out, "errands", p->errands.out, 0);
    expect(out, "sheets", p->sheets.out, 0);
    expect(out, "dirs", p->dirs.out, 0);
    expect(out, "idle_links", p->idle_count, count_idle(p));
    expect(out, "links", p->links.out, p->idle_count);
}

static void account_gauges(struct text *out)
{
    expect(out, "requests_in_flight", metric_read(METRIC_REQUESTS_IN_FLIGHT, 0, 0, 0), 0);
    expect(out, "fetches_in_flight", metric_read(METRIC_FETCHES_IN_FLIGHT, PURPOSE_DEMAND, 0, 0),
           0);
    expect(out, "connections_active", metric_read(METRIC_CONNECTIONS, CONN_ACTIVE, 0, 0), 0);
    expect(out, "connections_idle", metric_read(METRIC_CONNECTIONS, CONN_IDLE, 0, 0), 0);
    expect(out, "connections", net_connection_count(&server), 0);
    expect(out, "read_ahead", (uint64_t)atomic_load(&server.fills->ahead), 0);
}

/* How many of its connections are idle. */
static unsigned account_upstream(struct text *out, unsigned number)
{
    struct origin *o = server.origin[number];
    unsigned idle = 0;

    for (unsigned i = 0; i < server.core_count; i++) {
        account_part(out, origin_part(server.core[i], number));
        idle += origin_part(server.core[i], number)->idle_count;
    }
    expect(out, "upstream_active",
           metric_read(METRIC_UPSTREAM_CONNECTIONS, o->label, CONN_ACTIVE, 0), 0);
    expect(out, "upstream_idle",
           metric_read(METRIC_UPSTREAM_CONNECTIONS, o->label, CONN_IDLE, 0), idle);
    expect(out, "permits", atomic_load(&o->permit_state), 0);
    return idle;
}

/* Lists: each the table's own, and all memory theirs. */
static void account_lists(struct text *out)
{
    struct listings *t = &server.cache->listings;
    uint64_t bytes = 0, held = 0;

    LIST_EACH(&t->by_use, struct listing, by_use, l) {
        bytes += l->bytes + l->room;
        held += l->holds != 1;
    }
    expect(out, "held_lists", held, 0);
    expect(out, "bytes_of_lists", t->bytes, bytes);
}

/* The index's own hold, and no other. */
static void account_index(struct text *out)
{
    struct cache *c = server.cache;
    uint64_t objects = 0, chunks = 0, bytes = 0, space = 0;

    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        for (uint32_t at = 0; at < c->object[i].table.cap; at++) {
            const struct entry *e = index_table_at(&c->object[i].table, at);
            objects += e && !item_is_packed(e) && atomic_load(&e->o.holds) != 1;
        }
        for (uint32_t at = 0; at < c->chunk[i].table.cap; at++) {
            const void *item = index_table_at(&c->chunk[i].table, at);
            const struct chunk *k = item && !item_is_packed(item) ? item : NULL;
            chunks += k && atomic_load(&k->holds) != 1;
            if (item)
                bytes += space_class_bytes(k ? k->slot.class_
                                             : packed_slot(item_packed(item)).class_);
        }
    }
    for (unsigned i = 0; i < c->dir_count; i++)
        space += space_used_bytes(c->dir[i].space);
    expect(out, "held_objects", objects, 0);
    expect(out, "held_chunks", chunks, 0);
    expect(out, "slots_taken", space, bytes);
}

void life_accounts(struct text *out)
{
    struct pool_status pool;
    unsigned idle = 0;

    if (!is_quiet())
        text_adds(out, " not-quiet");
    for (unsigned i = 0; i < server.core_count; i++)
        account_core(out, server.core[i]);
    for (unsigned u = 0; u < config->upstream_count; u++)
        idle += account_upstream(out, u);
    account_gauges(out);
    account_index(out);
    account_lists(out);
    pool_status(cache_pool(server.cache), &pool);
    expect(out, "held_buffer_bytes", pool.held_bytes, 0);
    expect(out, "sockets", wire_open_count(), base_socks + idle);
    expect(out, "descriptors", open_files(), base_fds);
}
