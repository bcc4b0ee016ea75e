/* Metrics, all under the prefix headpond_: KIND(name, "id", (labels), help). A label is a set of
 * labels.h (written set or set:label name when they differ) or NAMED(DISK|UPSTREAM|BUCKET|WORKER).
 * Counters whose id ends in _seconds_total are counted in microseconds and printed in seconds. Rows
 * of jobs and prefetch come with those features. */
/* SPDX-License-Identifier: Apache-2.0 */
GAUGE(METRIC_BUILD_INFO, "build_info", "version revision liburing openssl",
        "Version of this server; always 1")
GAUGE(METRIC_START_TIME_SECONDS, "start_time_seconds", "", "Unix time at which the process began")
GAUGE(METRIC_UP_READY, "up_ready", "", "1 while /readyz answers 200")
COUNTER(METRIC_REQUESTS_TOTAL, "requests_total", "op result code",
        "Finished S3 requests by operation, cache result and status class")
HISTOGRAM(METRIC_REQUEST_DURATION_SECONDS, "request_duration_seconds", "op result",
        "From the last byte of the request head to the last body byte given to the kernel")
HISTOGRAM(METRIC_FIRST_BYTE_SECONDS, "first_byte_seconds", "op result",
        "From the last byte of the request head to the first response byte")
GAUGE(METRIC_REQUESTS_IN_FLIGHT, "requests_in_flight", "", "S3 requests being served")
COUNTER(METRIC_SENT_BYTES_TOTAL, "sent_bytes_total", "source",
        "Body bytes sent to clients by where they came from")
COUNTER(METRIC_RECEIVED_BYTES_TOTAL, "received_bytes_total", "",
        "Body bytes received from clients, without HTTP framing")
COUNTER(METRIC_STALL_SECONDS_TOTAL, "stall_seconds_total", "stall:cause",
        "Time GETs had nothing to send to a client that would take it, by what they waited for")
COUNTER(METRIC_GET_SECONDS_TOTAL, "get_seconds_total", "",
        "Time of GETs, of those that still run as well: what their stalls are a part of")
COUNTER(METRIC_AUTH_FAILURES_TOTAL, "auth_failures_total", "authfail:reason",
        "Requests refused by authentication")
COUNTER(METRIC_CONNECTIONS_REFUSED_TOTAL, "connections_refused_total", "",
        "Client connections closed at once: server.max_connections_per_address")
COUNTER(METRIC_DEADLINE_TOTAL, "deadline_total", "deadline:which",
        "Client connections ended by a deadline, by which one")
COUNTER(METRIC_FD_EXHAUSTED_TOTAL, "fd_exhausted_total", "",
        "Times that accepting paused because no file descriptor was left")
GAUGE(METRIC_CONN_STALLED, "conn_stalled", "",
        "Client connections that take less than we could send, or nothing")
GAUGE(METRIC_CONNECTIONS, "connections", "connstate:state", "Client connections")
COUNTER(METRIC_CONNECTIONS_TOTAL, "connections_total", "connend:end",
        "Client connections that ended, by how")
COUNTER(METRIC_TLS_HANDSHAKES_TOTAL, "tls_handshakes_total", "handshake:result",
        "TLS handshakes of clients, by how they ended")
GAUGE(METRIC_CACHE_CAPACITY_BYTES, "cache_capacity_bytes", "DISK", "Bytes a disk may hold")
GAUGE(METRIC_CACHE_USED_BYTES, "cache_used_bytes", "DISK", "Bytes a disk holds")
GAUGE(METRIC_CACHE_PAGES_BYTES, "cache_pages_bytes", "DISK",
        "The same with what is free in pages of 8 MiB that are lent to one size")
GAUGE(METRIC_CACHE_CHUNKS, "cache_chunks", "", "Chunks in the index")
GAUGE(METRIC_CACHE_GROUPS, "cache_groups", "",
        "Datasets (prefixes) that the eviction policy tells apart; 0: it does not")
GAUGE(METRIC_SIZING_READ_BYTES, "sizing_read_bytes", "",
        "Bytes asked for that sizing_hit_bytes is about, older ones with less weight; 0 = too few "
        "were asked for twice")
GAUGE(METRIC_SIZING_HIT_BYTES, "sizing_hit_bytes", "sizing:size",
        "Of these, bytes that a cache of so many times the size would not ask upstream for")
GAUGE(METRIC_CACHE_OBJECTS, "cache_objects", "", "Objects with at least one chunk")
GAUGE(METRIC_LIST_CACHE_BYTES, "list_cache_bytes", "",
        "Bytes of lists in memory; hits and misses are results of requests_total with op=list")
GAUGE(METRIC_CACHE_PINNED_BYTES, "cache_pinned_bytes", "",
        "Bytes of the disks that may not be evicted, with what is left of their pages")
COUNTER(METRIC_CACHE_EVICTED_BYTES_TOTAL, "cache_evicted_bytes_total", "evict:cause",
        "Bytes evicted")
COUNTER(METRIC_CACHE_REFUSED_BYTES_TOTAL, "cache_refused_bytes_total", "refuse:reason",
        "Fetched bytes that were served but not kept")
COUNTER(METRIC_PREFETCH_USED_BYTES_TOTAL, "prefetch_used_bytes_total", "",
        "Bytes of chunks that were fetched ahead of their readers, once the first of these came")
COUNTER(METRIC_PREFETCH_WASTED_BYTES_TOTAL, "prefetch_wasted_bytes_total", "",
        "Bytes of chunks that were fetched ahead and left the cache unread")
COUNTER(METRIC_CACHE_STALE_SERVED_TOTAL, "cache_stale_served_total", "stale:reason",
        "Responses served past their time to live")
COUNTER(METRIC_BUCKET_HIT_BYTES_TOTAL, "bucket_hit_bytes_total", "BUCKET",
        "Bytes of GETs served without asking upstream for them, by configured bucket section")
COUNTER(METRIC_BUCKET_MISS_BYTES_TOTAL, "bucket_miss_bytes_total", "BUCKET",
        "Bytes of GETs that came from upstream, by configured bucket section")
GAUGE(METRIC_BUCKET_USED_BYTES, "bucket_used_bytes", "BUCKET",
        "Bytes on disk that a configured bucket section holds")
COUNTER(METRIC_DISK_READ_BYTES_TOTAL, "disk_read_bytes_total", "DISK", "Bytes read from a disk")
COUNTER(METRIC_DISK_WRITTEN_BYTES_TOTAL, "disk_written_bytes_total", "DISK",
        "Bytes written to a disk")
COUNTER(METRIC_DISK_READS_JOINED_TOTAL, "disk_reads_joined_total", "",
        "Reads of a block from disk that were not made, as another reader's was under way")
HISTOGRAM(METRIC_DISK_READ_SECONDS, "disk_read_seconds", "DISK", "Duration of one disk read")
HISTOGRAM(METRIC_DISK_WRITE_SECONDS, "disk_write_seconds", "DISK", "Duration of one disk write")
COUNTER(METRIC_DISK_ERRORS_TOTAL, "disk_errors_total", "DISK diskop:op",
        "Disk operations that failed")
GAUGE(METRIC_DISK_UP, "disk_up", "DISK", "1 in use, 0 fenced")
COUNTER(METRIC_DISK_SLOW_TOTAL, "disk_slow_total", "DISK",
        "Disk operations that took longer than cache.disk_timeout; nobody waited on")
COUNTER(METRIC_DISK_FENCED_TOTAL, "disk_fenced_total", "DISK", "Times a disk was fenced")
GAUGE(METRIC_DISK_STUCK_OPS, "disk_stuck_ops", "DISK",
        "Disk operations under way behind cache.disk_timeout")
GAUGE(METRIC_DISK_QUARANTINED_BYTES, "disk_quarantined_bytes", "DISK",
        "Memory that such operations keep from other uses")
COUNTER(METRIC_CHECKSUM_FAILURES_TOTAL, "checksum_failures_total", "DISK",
        "Chunks whose checksum did not match")
COUNTER(METRIC_CHECKSUM_REPAIRED_TOTAL, "checksum_repaired_total", "",
        "Such chunks fetched again within the same request")
COUNTER(METRIC_SCRUB_BYTES_TOTAL, "scrub_bytes_total", "",
        "Bytes that the scrub has read and compared (cache.scrub)")
GAUGE(METRIC_SCRUB_LAST_PASS_TIME_SECONDS, "scrub_last_pass_time_seconds", "",
        "Unix time at which the scrub had compared everything; 0 = not since the start")
GAUGE(METRIC_JOBS, "jobs", "jobstate:state", "Jobs by state")
GAUGE(METRIC_JOB_BYTES, "job_bytes", "jobbytes:state",
        "Bytes of the prewarm jobs that have not ended, all together: wanted, here, of failed keys")
GAUGE(METRIC_BACKGROUND_LEFT_BYTES, "background_left_bytes", "",
        "Bytes still to come of the dataset that is filled now (prefetch.background); 0 = none is")
GAUGE(METRIC_PLANS, "plans", "planstate:state",
        "Loaders' plans by state: running, waiting behind the epoch before, read, overtaken")
GAUGE(METRIC_PLAN_ENTRIES, "plan_entries", "", "Entries of the plans that are not over")
COUNTER(METRIC_PLAN_LATE_TOTAL, "plan_late_total", "",
        "Entries of plans that were asked for before they were here")
COUNTER(METRIC_UPSTREAM_REQUESTS_TOTAL, "upstream_requests_total", "UPSTREAM op code",
        "Requests sent upstream by operation and status class")
COUNTER(METRIC_UPSTREAM_RECEIVED_BYTES_TOTAL, "upstream_received_bytes_total", "UPSTREAM purpose",
        "Body bytes received from upstream by purpose")
COUNTER(METRIC_UPSTREAM_SENT_BYTES_TOTAL, "upstream_sent_bytes_total", "UPSTREAM",
        "Body bytes sent to upstream, those sent again included")
HISTOGRAM(METRIC_UPSTREAM_SECONDS, "upstream_seconds", "UPSTREAM op",
        "From request sent, with its body, to response head received")
COUNTER(METRIC_UPSTREAM_RETRIES_TOTAL, "upstream_retries_total", "UPSTREAM retry:reason",
        "Requests sent again")
COUNTER(METRIC_UPSTREAM_RETRIES_DENIED_TOTAL, "upstream_retries_denied_total",
        "UPSTREAM retry:reason", "Requests not sent again because the retry budget was used up")
COUNTER(METRIC_UPSTREAM_PROBES_TOTAL, "upstream_probes_total", "UPSTREAM",
        "Questions whether an upstream that is down is back")
GAUGE(METRIC_UPSTREAM_CONCURRENCY_LIMIT, "upstream_concurrency_limit", "UPSTREAM",
        "Requests to upstream allowed at once; less than upstream.connections while it throttles")
GAUGE(METRIC_UPSTREAM_PREFETCH_LIMIT, "upstream_prefetch_limit", "UPSTREAM",
        "Of them, those that prewarm jobs and the background may have; beside misses fewer")
COUNTER(METRIC_UPSTREAM_ERRORS_TOTAL, "upstream_errors_total", "UPSTREAM broken:kind",
        "Exchanges with upstream that failed after their retries, and answers that were refused")
COUNTER(METRIC_UPSTREAM_CHECKSUM_MISMATCH_TOTAL, "upstream_checksum_mismatch_total", "UPSTREAM",
        "Answers whose bytes did not have the checksum that upstream names, or seems to name")
GAUGE(METRIC_UPSTREAM_CONNECTIONS, "upstream_connections", "UPSTREAM connstate:state",
        "Connections to upstream")
GAUGE(METRIC_UPSTREAM_UP, "upstream_up", "UPSTREAM", "1 while upstream answers")
COUNTER(METRIC_CREDENTIALS_REFRESHES_TOTAL, "credentials_refreshes_total", "refresh:result",
        "Upstream credentials asked for, by whether new ones came")
GAUGE(METRIC_CREDENTIALS_EXPIRE_TIME_SECONDS, "credentials_expire_time_seconds", "",
        "Unix time at which the first of the renewed credentials expire; 0 = none are renewed")
GAUGE(METRIC_FETCHES_IN_FLIGHT, "fetches_in_flight", "purpose", "Chunk fetches under way")
COUNTER(METRIC_FETCH_JOINED_TOTAL, "fetch_joined_total", "",
        "Requests that joined a fetch under way instead of starting one")
HISTOGRAM(METRIC_INDEX_COMMIT_SECONDS, "index_commit_seconds", "", "Duration of one index commit")
GAUGE(METRIC_INDEX_DIRTY_ENTRIES, "index_dirty_entries", "", "Index changes not yet committed")
GAUGE(METRIC_INDEX_UNREAD_CHUNKS, "index_unread_chunks", "DISK",
        "Chunks whose checksums the start left behind, still to be read")
GAUGE(METRIC_INDEX_MEMORY_BYTES, "index_memory_bytes", "", "Memory that the index takes")
GAUGE(METRIC_INDEX_MEMORY_LIMIT_BYTES, "index_memory_limit_bytes", "",
        "cache.index_memory: what it may take")
GAUGE(METRIC_INDEX_PACKED_OBJECTS, "index_packed_objects", "",
        "Small objects in a third of the memory, as nobody has read them for a while")
COUNTER(METRIC_INDEX_ERRORS_TOTAL, "index_errors_total", "DISK", "Index commits that failed")
COUNTER(METRIC_INDEX_DROPPED_TOTAL, "index_dropped_total", "DISK",
        "Index records that were damaged or fitted nothing, dropped at the start")
COUNTER(METRIC_INDEX_MOVED_TOTAL, "index_moved_total", "DISK",
        "Indexes moved aside because they were damaged, or lost while in use")
COUNTER(METRIC_LOOP_BUSY_SECONDS_TOTAL, "loop_busy_seconds_total", "WORKER",
        "Time a worker loop was not waiting")
HISTOGRAM(METRIC_LOOP_DELAY_SECONDS, "loop_delay_seconds", "",
        "Length of a loop's turn, which is how long a ready event may wait; idle turns count, too")
GAUGE(METRIC_BUFFERS_USED_BYTES, "buffers_used_bytes", "", "I/O buffers in use")
GAUGE(METRIC_BUFFERS_HELD_BYTES, "buffers_held_bytes", "",
        "I/O buffers that a request or a fetch holds; the rest of the used ones is cache")
GAUGE(METRIC_BUFFERS_LIMIT_BYTES, "buffers_limit_bytes", "", "I/O buffers at most")
GAUGE(METRIC_BUFFERS_READY_BYTES, "buffers_ready_bytes", "",
      "Memory of I/O buffers that was made ready before its use")
COUNTER(METRIC_SAVED_UPSTREAM_BYTES_TOTAL, "saved_upstream_bytes_total", "",
        "Bytes served without asking upstream for them")
GAUGE(METRIC_CONFIG_RELOAD_SUCCESS, "config_reload_success", "",
        "1 if the last reload was accepted")
GAUGE(METRIC_CONFIG_RELOAD_TIME_SECONDS, "config_reload_time_seconds", "",
        "Unix time of the last accepted reload")
COUNTER(METRIC_LOG_LINES_LOST_TOTAL, "log_lines_lost_total", "",
        "Log lines lost as whoever reads them took none, or the disk was full")
COUNTER(METRIC_CONFIG_RELOADS_TOTAL, "config_reloads_total", "reload:result",
        "Reloads, by whether all requests follow them now or they were refused and changed nothing")
