#include "dist/ranks/wire.h"

#include <limits.h>

static enum dt_status check_bytes(size_t n_bytes)
{
    if (n_bytes > INT_MAX) {
        return dt_error(
            DT_CONFIG, "%zu bytes are too many for one message of at most %d (use smaller buckets)",
            n_bytes, INT_MAX);
    }
    return DT_OK;
}

enum dt_status dt_wire_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                            size_t n_bytes, struct dt_wire_request *request)
{
    DT_ASSERT(peer >= 0 && peer < wire->size && tag >= 0);
    DT_TRY(check_bytes(n_bytes));
    DT_TRY(wire->ops->send(wire, peer, tag, bytes, n_bytes, request));
    request->active = true;
    dt_traffic_add(&wire->sent[peer], (struct dt_traffic){1, n_bytes});
    return DT_OK;
}

enum dt_status dt_wire_receive(struct dt_wire *wire, int peer, int tag, void *bytes, size_t n_bytes,
                               struct dt_wire_request *request)
{
    DT_ASSERT(peer >= 0 && peer < wire->size && tag >= 0);
    DT_TRY(check_bytes(n_bytes));
    DT_TRY(wire->ops->receive(wire, peer, tag, bytes, n_bytes, request));
    request->active = true;
    return DT_OK;
}

enum dt_status dt_wire_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    *done = true;
    if (request->active) {
        DT_TRY(wire->ops->test(wire, request, done));
        request->active = !*done;
    }
    return DT_OK;
}

void dt_wire_close(struct dt_wire *wire)
{
    if (wire != NULL) {
        wire->ops->close(wire);
    }
}

struct dt_wire_sent dt_wire_sent(const struct dt_wire *wire)
{
    const int *roots = wire->host_roots;
    struct dt_wire_sent sent = {0};
    for (int i = 0; i < wire->size; i++) {
        const bool leaves = roots == NULL || roots[i] != roots[wire->rank];
        dt_traffic_add(&sent.all, wire->sent[i]);
        dt_traffic_add(&sent.between_hosts, leaves ? wire->sent[i] : (struct dt_traffic){0});
    }
    DT_ASSERT(sent.between_hosts.bytes <= sent.all.bytes);
    return sent;
}
