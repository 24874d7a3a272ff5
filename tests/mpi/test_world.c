/* The ranks agree on errors, whoever has them. */
#include "dist/launch/job.h"
#include "dist/launch/launch.h"
#include "tests/lib/rig.h"

/* Ranks whose bit is set in `failing` fail; `alike`: all in the same way. */
static void check_agree(struct dt_world *world, unsigned failing, bool alike)
{
    enum dt_status mine = DT_OK;
    dt_error_clear();
    if (failing >> world->rank & 1) {
        mine = alike ? dt_error(DT_NO_INPUT, "x.idx: No such file")
                     : dt_error(world->rank % 2 == 0 ? DT_BAD_DATA : DT_NO_INPUT,
                                "shard %d is damaged", world->rank);
    }
    int first = 0, n_failing = 0;
    for (int rank = world->size - 1; rank >= 0; rank--) {
        first = failing >> rank & 1 ? rank : first;
        n_failing += failing >> rank & 1;
    }
    char cause[64], head[32];
    snprintf(cause, sizeof cause, alike ? "x.idx: No such file" : "shard %d is damaged", first);
    snprintf(head, sizeof head, "rank %d (", first);
    const enum dt_status agreed = dt_world_agree(world, mine);
    CHECK_INT(agreed, n_failing == 0 ? DT_OK : alike || first % 2 == 1 ? DT_NO_INPUT : DT_BAD_DATA);
    if (n_failing > 0 && (n_failing < world->size || (!alike && world->size > 1))) {
        CHECK(strncmp(dt_error_text(), head, strlen(head)) == 0);
        CHECK_HAS(dt_error_text(), world->host); /* all on one host here */
        CHECK_TEXT(strstr(dt_error_text(), "): ") + 3, cause);
    } else {
        CHECK_TEXT(dt_error_text(), n_failing == 0 ? "" : cause);
    }
    CHECK_INT(dt_error_is_agreed(), n_failing > 0 && world->size > 1);
    dt_error_clear();
    CHECK(!dt_error_is_agreed());
}

/* An agreed error that waits stays agreed whatever else goes wrong; without a text of its own, as
 * of DT_STOPPED, it gives way. */
static void test_later_error(void)
{
    dt_error_agreed(dt_error(DT_IO, "the disk is full"));
    dt_error(DT_NO_MEMORY, "no memory to say so");
    CHECK(dt_error_is_agreed());
    dt_error_clear();
    dt_error_agreed(DT_STOPPED);
    dt_error(DT_NO_MEMORY, "no memory to stop");
    CHECK(!dt_error_is_agreed());
    dt_error_clear();
}

/* All fail with one status, for different reasons: rank 0's is printed, as its own. */
static void test_same_status(struct dt_world *world)
{
    CHECK_FAILS(dt_world_agree(world, dt_error(DT_IO, "disk %d is full", world->rank)), DT_IO,
                "disk 0 is full");
    CHECK_INT(strncmp(dt_error_text(), "rank 0 (", 8) == 0, world->size > 1);
    dt_error_clear();
}

/* An error text of full length still has its head, and the cause's beginning. */
static void test_long_text(struct dt_world *world)
{
    char name[DT_ERROR_TEXT_SIZE * 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const enum dt_status mine =
        world->rank == world->size - 1 ? dt_error(DT_IO, "%s", name) : DT_OK;
    CHECK_INT(dt_world_agree(world, mine), DT_IO);
    CHECK_HAS(dt_error_text(), "xxxxxxxx");
    if (world->size > 1) {
        CHECK(strncmp(dt_error_text(), "rank ", 5) == 0);
    }
    dt_error_clear();
}

/* No memory on one rank is none on any; what the others had is given back. */
static void test_alloc(struct dt_world *world)
{
    volatile size_t too_many = SIZE_MAX / 2;
    char *bytes = NULL;
    CHECK_OK(dt_world_alloc(world, 2, 3, "a test", (void **)&bytes));
    CHECK(bytes != NULL && bytes[0] == 0 && bytes[5] == 0);
    free(bytes);
    const bool fails = world->rank == world->size - 1;
    CHECK_INT(dt_world_alloc(world, fails ? too_many : 1, 1, "a test", (void **)&bytes),
              DT_NO_MEMORY);
    CHECK(bytes == NULL);
    CHECK_HAS(dt_error_text(), "out of memory for a test");
    dt_error_clear();
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    CHECK(world.rank >= 0 && world.rank < world.size);
    CHECK(world.local_rank >= 0 && world.local_rank < world.local_size &&
          world.local_size <= world.size);
    CHECK(world.host[0] != '\0' && world.comm != NULL && world.comm->size == world.size &&
          world.comm->rank == world.rank);
    CHECK(strncmp(dt_mpi_version(), "MPICH ", 6) == 0 ||
          strncmp(dt_mpi_version(), "Open MPI v", 10) == 0);
    CHECK(strpbrk(dt_mpi_version(), "\t\n") == NULL);
    for (unsigned failing = 0; failing < 1u << world.size; failing++) {
        check_agree(&world, failing, true);
        check_agree(&world, failing, false);
    }
    test_same_status(&world);
    test_long_text(&world);
    test_later_error();
    test_alloc(&world);
    int32_t n_speakers = dt_world_speaks(&world, true);
    CHECK_OK(dt_comm_allreduce(world.comm, &n_speakers, 1, DT_TYPE_I32, DT_REDUCE_SUM,
                               "count of speakers"));
    CHECK_INT(n_speakers, 1);
    dt_world_exit(&world, DT_OK, true);
}
