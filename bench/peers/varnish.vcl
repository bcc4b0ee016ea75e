# varnish: memory only (malloc), as it is run where what is hot fits. bench/lib/servers.sh starts it with
#   one pool of threads (one core), up to 1500 of them: a thread belongs to a request while one is under way;
#   fetch_chunksize 1m, as bodies are large; no log record of a request; idle connections kept;
#   streaming is on: who asks while an object comes gets what has come.
# Left out where bytes come from disk, and of the scattered ranges: it fetches whole objects from their first byte.
vcl 4.1;

backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
    .connect_timeout = 5s;
    .first_byte_timeout = 600s;
    .between_bytes_timeout = 600s;
}

sub vcl_recv {
    return (hash);
}

sub vcl_backend_response {
    set beresp.ttl = 30d;
    set beresp.do_stream = true;
    set beresp.do_gzip = false;
}
