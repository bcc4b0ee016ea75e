/* Log events: X(name, level, words, what the operator should know or do). */
/* SPDX-License-Identifier: Apache-2.0 */
X(EVENT_STARTED, LOG_INFO, "started", "The server is ready to serve.")
X(EVENT_START_FAILED, LOG_ERROR, "cannot start", "The line names the cause and what to do.")
X(EVENT_STOPPING, LOG_INFO, "stopping",
        "A signal asked for the end; running requests finish first.")
X(EVENT_STOPPED, LOG_INFO, "stopped", "Everything is written and closed.")
X(EVENT_DRAIN_CUT, LOG_WARN, "drain deadline passed", "Requests were still running and were cut.")
X(EVENT_CONFIG, LOG_WARN, "configuration note", "Something unusual but allowed was configured.")
X(EVENT_REFUSALS, LOG_INFO, "more requests refused",
        "Of refused requests (4xx) a core writes 50 lines in 10 s; so many came besides, to all.")
X(EVENT_RELOADED, LOG_INFO, "configuration reloaded", "All requests follow the new configuration.")
X(EVENT_RELOAD_REFUSED, LOG_ERROR, "reload refused",
        "Nothing has changed; the line names the mistake.")
X(EVENT_RESTART_NEEDED, LOG_WARN, "restart needed",
        "These options keep their values until the next start.")
X(EVENT_SCHEDULE, LOG_INFO, "schedule",
        "Other [[schedule]] sections are in force from this minute on; the line names them.")
X(EVENT_PLAIN_UPSTREAM, LOG_WARN, "upstream without TLS",
        "Credentials are signed, bytes are not encrypted on the way.")
X(EVENT_INSECURE, LOG_WARN, "certificate verification is off", "upstream.insecure is true.")
X(EVENT_UPSTREAM_ERROR, LOG_WARN, "upstream error", "A request failed for good after its retries.")
X(EVENT_UPSTREAM_DOWN, LOG_WARN, "upstream down",
        "It does not answer; what is held is served (upstream.offline), the rest is refused.")
X(EVENT_UPSTREAM_UP, LOG_INFO, "upstream up", "It answers again; nothing has to be done.")
X(EVENT_UPSTREAM_SLOWDOWN, LOG_WARN, "upstream slow-down",
        "The upstream throttles; fewer requests are sent at once.")
X(EVENT_UPSTREAM_DNS, LOG_WARN, "upstream name not resolved",
        "The last known addresses stay in use.")
X(EVENT_UPSTREAM_ANSWER, LOG_WARN, "upstream answer refused",
        "An answer was malformed or not what was asked.")
X(EVENT_UPSTREAM_CHECKSUM, LOG_WARN, "upstream checksum mismatch",
        "An object's bytes did not have the checksum that upstream names; they were not kept, but "
        "for an ETag that twice did not fit the same bytes.")
X(EVENT_UPSTREAM_ETAGS, LOG_INFO, "upstream ETags are no MD5",
        "They look like MD5s but none was one: objects are compared with other checksums only.")
X(EVENT_CREDENTIALS, LOG_WARN, "upstream credentials",
        "Credentials are missing, unreadable or about to expire.")
X(EVENT_CREDENTIALS_RENEWED, LOG_INFO, "upstream credentials renewed",
        "Requests are signed with the next ones from now on.")
X(EVENT_CREDENTIALS_FAILED, LOG_WARN, "upstream credentials not renewed",
        "The ones of before stay in use until they expire; the line names the cause.")
X(EVENT_LOOP, LOG_WARN, "request loop",
        "A request came back to this server: the upstream points at this cache.")
X(EVENT_DISK_ERROR, LOG_WARN, "disk error",
        "A read or write of a cache disk failed; the request went to upstream.")
X(EVENT_DISK_SUSPECT, LOG_WARN, "disk suspect",
        "It hangs: nothing is begun on it until it answers; requests go to upstream.")
X(EVENT_DISK_FENCED, LOG_ERROR, "disk fenced",
        "It is not used, requests go to upstream; the line names the cause and what to do.")
X(EVENT_DISK_REFUSED, LOG_WARN, "disk not taken in",
        "A directory that was left out at the start is there, and cannot be used.")
X(EVENT_DISK_PROBATION, LOG_INFO, "disk on probation",
        "It passes its tests; it is used again when it has done so for a while.")
X(EVENT_DISK_UP, LOG_INFO, "disk up", "It is in use again, with all that it held.")
X(EVENT_CHECKSUM, LOG_WARN, "checksum mismatch",
        "Damaged bytes were found on disk, dropped and fetched again.")
X(EVENT_INDEX_COMMIT, LOG_ERROR, "index commit failed",
        "New records are not durable; they stay usable until the restart.")
X(EVENT_INDEX_DAMAGED, LOG_WARN, "index moved aside",
        "The index was damaged; the cache starts empty.")
X(EVENT_INDEX_LOST, LOG_ERROR, "index lost",
        "The index failed while it was in use; what is cached stays usable, a new one is written.")
X(EVENT_INDEX_RENEWED, LOG_INFO, "index renewed",
        "An index that was lost was written anew from memory: a restart finds all again.")
X(EVENT_INDEX_LOADED, LOG_INFO, "index loaded", "How much of the cache survived the restart.")
X(EVENT_INDEX_SUMS, LOG_INFO, "checksums loaded",
  "What the start left behind of the index, read beside the first requests.")
X(EVENT_RECORD, LOG_WARN, "index record dropped", "A damaged record was counted as a miss.")
X(EVENT_CACHE_FULL, LOG_WARN, "nothing to evict", "Fetched bytes are served but not kept.")
X(EVENT_CHANGED, LOG_INFO, "object changed upstream", "A cached generation was dropped.")
X(EVENT_CONNECTIONS, LOG_WARN, "connection limit reached",
        "server.max_connections is in use and none of them idle; new ones wait.")
X(EVENT_PEER_CONNECTIONS, LOG_WARN, "too many connections of one address",
        "server.max_connections_per_address; further ones are closed at once.")
X(EVENT_DESCRIPTORS, LOG_WARN, "too few file descriptors",
        "Raise LimitNOFILE; fewer connections are accepted.")
X(EVENT_TLS, LOG_INFO, "TLS handshake failed",
        "A client and this server found no common ground, or it was no TLS client.")
X(EVENT_CERTIFICATE, LOG_WARN, "certificate ends soon",
        "Clients refuse it once it has ended: replace the files and reload.")
X(EVENT_JOB, LOG_INFO, "job",
        "A job of an operator's begins, pauses, goes on or ends; headpond job show tells more.")
X(EVENT_PLAN, LOG_INFO, "plan",
        "A loader's plan was posted, was read to its end, overtaken or dropped; headpond plan show "
        "tells more.")
X(EVENT_SCRUB, LOG_INFO, "scrub pass ended",
        "All that is cached was compared with its checksums; what was damaged was dropped.")
X(EVENT_ADMIN, LOG_WARN, "admin request refused",
        "Someone asked the admin port for something not allowed.")
