/* Every option: kind(section, key, field, default, [limits,] flags, help). Flags: RESTART, LIVE;
 * LATER marks a key whose other values are refused with a clear message until the feature exists,
 * REQUIRED one that must not be empty. Order is the order of conf/headpond.toml.
 *
 * The rows of "upstream" are fields of struct conf_upstream, all others of struct config: who needs
 * only one half defines OPT_UPSTREAM_ONLY or OPT_UPSTREAM_NOT before the include. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_UPSTREAM_ONLY
OPT_LIST("server", "listen", server_listen, "0.0.0.0:9000", RESTART,
        "S3 port; IPv6 as \"[::]:9000\"")
OPT_COUNT("server", "workers", server_workers, "0", 0, 256, RESTART,
        "event loops; 0 = one per physical core")
OPT_TEXT("server", "name", server_name, "", RESTART,
        "name in the Via field and in status; empty = host name")
OPT_TEXT("server", "tls_cert", server_tls_cert, "", LIVE,
        "PEM chain; empty = plain HTTP (normal inside the cluster)")
OPT_TEXT("server", "tls_key", server_tls_key, "", LIVE, "PEM key of tls_cert, mode 0600")
OPT_TEXT("server", "domain", server_domain, "", LIVE,
        "also accept BUCKET.<domain> (virtual-host style); path style always works")
OPT_COUNT("server", "max_connections", server_max_connections, "8192", 16, 1000000, RESTART,
        "client connections at most, over all workers")
OPT_COUNT("server", "max_connections_per_address", server_max_connections_per_address, "4096", 0,
        1000000, RESTART,
        "of one client address (IPv6: /64); 0 = no limit, e.g. behind a balancer")
OPT_TIME("server", "header_timeout", server_header_timeout, "10s", LIVE,
        "from the first byte of a request head to its last")
OPT_TIME("server", "idle_timeout", server_idle_timeout, "2m", LIVE,
        "how long a kept connection may be silent")
OPT_TIME("server", "body_timeout", server_body_timeout, "60s", LIVE,
        "how long a client may send no byte of a body that is waited for")
OPT_TIME("server", "send_timeout", server_send_timeout, "10m", LIVE,
        "how long a client may take no byte of an answer (loaders pause during validation)")
OPT_TEXT("server", "congestion", server_congestion, "cubic", RESTART,
        "TCP_CONGESTION of our sockets; \"\" = system default")
OPT_TIME("server", "drain_timeout", server_drain_timeout, "60s", LIVE,
        "on SIGTERM: not ready at once, then finish what runs")
OPT_BOOL("server", "allow_root", server_allow_root, "false", RESTART,
        "run although the user is root")
OPT_LIST("admin", "listen", admin_listen, "unix:/run/headpond/admin.sock, 127.0.0.1:9001", RESTART,
        "admin API, metrics, status page; a socket path that cannot be made falls back to <first "
        "cache dir>/admin.sock")
OPT_TEXT("admin", "token_file", admin_token_file, "", RESTART,
        "bearer token for changes over TCP; without it TCP is read-only")
OPT_TEXT("admin", "metrics_listen", admin_metrics_listen, "", RESTART,
        "e.g. \"0.0.0.0:9002\": only /metrics, health and the status page")
OPT_LIST("auth", "anonymous", auth_anonymous, "127.0.0.0/8, ::1", LIVE,
        "address ranges that may GET and HEAD without a signature")
OPT_TEXT("auth", "keys_file", auth_keys_file, "", LIVE,
        "local keys, mode 0600, one per line: "
        "ACCESS SECRET [ro|rw] [bucket[/prefix],...] [profile=NAME]")
OPT_TIME("auth", "clock_skew", auth_clock_skew, "15m", LIVE,
        "how far a signature's time may be off")
OPT_BOOL("auth", "sigv2", auth_sigv2, "false", LIVE,
        "accept Signature Version 2, too: old clients, and the default URLs of boto3")
#endif
#ifndef OPT_UPSTREAM_NOT
OPT_TEXT("upstream", "name", name, "", RESTART,
        "identity of the store; empty = from host, port and path")
OPT_TEXT("upstream", "endpoint", endpoint, "", RESTART | REQUIRED,
        "https://host[:port], http://host[:port] or file:///dir; required")
OPT_TEXT("upstream", "region", region, "", RESTART,
        "empty: AWS_REGION, profile, then from the endpoint's name")
OPT_TEXT("upstream", "profile", profile, "", RESTART,
        "credentials as every AWS tool finds them; empty = AWS_PROFILE or default")
OPT_TEXT("upstream", "sts_endpoint", sts_endpoint, "", LIVE,
        "URL of the STS that gives credentials for roles; empty = that of AWS in the region")
OPT_ENUM("upstream", "path_style", path_style, "auto", "auto|path|virtual", RESTART,
        "auto: virtual host for amazonaws.com, path else")
OPT_COUNT("upstream", "connections", connections, "64", 1, 4096, LIVE,
        "most at once to this endpoint; raised by a reload: within the open files that it has")
OPT_BYTES("upstream", "bandwidth", bandwidth, "0", LIVE,
        "bytes per second for all fetches, those that a reader waits for first; 0 = no limit")
OPT_TEXT("upstream", "proxy", proxy, "", RESTART | LATER, "http://host:port, CONNECT")
OPT_TEXT("upstream", "ca_file", ca_file, "", RESTART,
        "PEM certificates; empty = system store (or AWS_CA_BUNDLE)")
OPT_BOOL("upstream", "insecure", insecure, "false", RESTART,
        "allow unverified certificates, and plain HTTP to public addresses")
OPT_TIME("upstream", "connect_timeout", connect_timeout, "3s", LIVE,
        "for TCP and TLS together, per try")
OPT_TIME("upstream", "read_timeout", read_timeout, "15s", LIVE,
        "no byte for so long = retry; four times that for lists and sub-resources")
OPT_COUNT("upstream", "retries", retries, "5", 0, 20, LIVE,
        "how often a request is sent again")
OPT_ENUM("upstream", "trailers", trailers, "auto", "auto|on|off", LIVE,
        "whether it takes checksums behind an upload's body; auto = amazonaws.com does")
OPT_ENUM("upstream", "offline", offline, "serve", "serve|fail", LIVE,
        "when unreachable: serve what we hold, marked stale | fail")
OPT_LIST("upstream", "reserved", reserved, "minio, admin", LIVE,
        "buckets that nobody may ask for: paths of a store's administration (MinIO, Ceph); [] = "
        "none")
#endif
#ifndef OPT_UPSTREAM_ONLY
OPT_LIST("cache", "dirs", cache_dirs, "", RESTART | REQUIRED,
        "one directory per disk; weight = size; required")
OPT_SIZE("cache", "size", cache_size, "90%", RESTART, "of each disk, or bytes")
OPT_BYTES("cache", "memory", cache_memory, "1GiB", RESTART,
        "pool of verified buffers (the RAM tier)")
OPT_BYTES("cache", "index_memory", cache_index_memory, "0", RESTART,
        "RAM index; 0 = 1/8 of cache.memory, at least 64 MiB")
OPT_ENUM("cache", "chunk", cache_chunk, "8MiB", "8MiB", RESTART,
        "unit of fetch and of eviction; only 8MiB in this version")
OPT_ENUM("cache", "verify", cache_verify, "read", "read", RESTART,
        "checksums are compared on every disk read; only \"read\" in this version")
OPT_TIME("cache", "ttl", cache_ttl, "60s", LIVE,
        "how long an answer is used without asking upstream; 0 = always ask")
OPT_BOOL("cache", "immutable", cache_immutable, "false", LIVE,
        "true: never ask again (a bucket section may set it)")
OPT_TIME("cache", "negative_ttl", cache_negative_ttl, "1s", LIVE, "how long a 404 is remembered")
OPT_TIME("cache", "list_ttl", cache_list_ttl, "30s", LIVE,
        "how long a list of objects is used without asking upstream, but never longer than ttl "
        "(immutable: than this); 0 = always ask")
OPT_ENUM("cache", "policy", cache_policy, "ehd", "ehd|lru", RESTART,
        "what stays: ehd = what promises most hits, by what is learnt of each dataset (what "
        "promises too few passes through); lru = what was read last")
OPT_ENUM("cache", "write", cache_write, "through", "through|around", LIVE,
        "PUT goes upstream, then: through = kept, around = not kept")
OPT_BYTES("cache", "min_free", cache_min_free, "2GiB", RESTART,
        "per disk, kept free on the file system")
OPT_TIME("cache", "disk_timeout", cache_disk_timeout, "1s", RESTART,
        "a disk that takes longer is not waited for, upstream is asked; 0 = no limit")
OPT_TIME("cache", "max_write_delay", cache_max_write_delay, "250ms", RESTART,
        "once writes to a disk take longer, and what waits for them fills its part of the memory, "
        "what is new is passed through and not kept; 0 = its readers wait for the disk")
OPT_BYTES("cache", "scrub", cache_scrub, "8MiB", LIVE,
        "bytes per second at which all that is cached is compared with its checksums, at most once "
        "a day; 0 = off")
OPT_ENUM("prefetch", "readahead", prefetch_readahead, "auto", "auto|off", LIVE,
        "per stream, which is a long read or ranges that follow each other: 4 chunks in front of "
        "the reader, up to 16 where he waits")
OPT_ENUM("prefetch", "background", prefetch_background, "off", "off|auto|always", LIVE,
        "fetch the rest of a dataset behind all else, into room that is free: auto = once a tenth "
        "of its objects was read within an hour, always = as soon as one was")
OPT_COUNT("prefetch", "inflight", prefetch_inflight, "32", 1, 1024, LIVE,
        "chunks fetched ahead at once; as many again by plans, then by prewarm jobs, which come "
        "behind")
OPT_BYTES("prefetch", "bandwidth", prefetch_bandwidth, "0", LIVE,
        "bytes per second that all prewarm jobs fetch together, 0 = no limit")
OPT_ENUM("log", "level", log_level, "info", "error|warn|info|debug", LIVE,
        "least severe level that is written")
OPT_ENUM("log", "format", log_format, "auto", "auto|text|logfmt|json", LIVE,
        "text at a terminal, else logfmt; json")
OPT_ENUM("log", "access", log_access, "errors", "off|errors|slow|all", LIVE,
        "errors = 5xx, broken answers, 4xx but 404, 412, 416; slow = over slow_ms, too")
OPT_COUNT("log", "slow_ms", log_slow_ms, "1000", 1, 3600000, LIVE, "what counts as slow")
#endif
