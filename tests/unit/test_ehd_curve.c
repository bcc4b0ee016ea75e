/* Curves: buckets, the prior, survival, ranks against a search through all horizons. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/ehd_curve.c"

#include <setjmp.h>

#include <cmocka.h>

static void buckets_grow_with_the_age(void **state)
{
    (void)state;
    static const struct {
        uint32_t age;
        unsigned bucket;
    } row[] = {{0, 0},  {1, 1},  {3, 3},   {4, 4},    {5, 5},      {7, 7},
               {8, 8},  {9, 8},  {10, 9},  {15, 11},  {16, 12},    {UINT32_MAX, EHD_BUCKETS - 1}};
    uint32_t age = 0;

    for (size_t n = 0; n < ARRAY_COUNT(row); n++)
        assert_int_equal(ehd_bucket(row[n].age), row[n].bucket);
    for (unsigned b = 0; b + 1 < EHD_BUCKETS; b++) {
        assert_int_equal(ehd_bucket(age), b);
        age += (uint32_t)width_of(b);
        assert_int_equal(ehd_bucket(age - 1), b);
    }
}

static void a_new_group_has_the_prior_at_every_age(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    ehd_prior(1000, prior);
    ehd_ranks(&c, prior, &rank);
    for (unsigned class_ = 0; class_ < EHD_CLASSES; class_++)
        for (unsigned b = 0; b < ehd_bucket(250); b++) {
            assert_true(rank.n[class_][b] > .9f / 4000);
            assert_true(rank.n[class_][b] < 1.2f / 4000);
        }
}

/* Read again 100 ticks after, always: worth the more, the nearer that is. */
static void a_loop_is_worth_more_the_nearer_its_next_round(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    c.reused.n[5][ehd_bucket(100)] = 2000;
    ehd_prior(1000, prior);
    ehd_ranks(&c, prior, &rank);
    for (unsigned b = 1; b <= ehd_bucket(100); b++)
        assert_true(rank.n[5][b] > rank.n[5][b - 1]);
    assert_true(rank.n[5][0] > .9f / 100 && rank.n[5][0] < 1.1f / 100);
    assert_true(rank.n[5][ehd_bucket(100) + 2] < rank.n[5][0]); /* missed its turn */
    assert_true(rank.n[6][0] == rank.n[0][0]); /* without data: the group's */
}

static void wait_at(struct ehd_curve *c, unsigned class_, uint32_t age)
{
    c->open[class_][ehd_bucket(age)] += ehd_waits(age, ehd_bucket(age));
}

static void assert_part_ahead(uint32_t age, double part)
{
    uint64_t waits = ehd_waits(age, ehd_bucket(age));

    assert_int_equal(waits >> 32, 1);
    assert_true(fabs((double)(uint32_t)waits / EHD_PARTS - part) < .01);
}

static void parts_of_a_bucket_that_are_ahead(void **state)
{
    (void)state;
    assert_part_ahead(1, .5);
    assert_part_ahead(5, .5);
    assert_part_ahead(1024, 1);
    assert_part_ahead(1024 + 128, .5);
    assert_part_ahead(1024 + 255, 0);
    assert_part_ahead(1u << 25, 0);  /* behind the last bucket's beginning, which has no end */
    assert_part_ahead(UINT32_MAX, 0);
}

/* As many as the sample may hold, all of them at the beginning of one bucket. */
static void as_many_as_the_sample_holds_are_counted(void **state)
{
    (void)state;
    static struct ehd_curve c;

    for (unsigned n = 0; n < 1u << 19; n++)
        wait_at(&c, 0, 1u << 22);
    assert_int_equal(c.open[0][ehd_bucket(1u << 22)] >> 32, 1u << 19);
}

/* At ages that nobody has reached, every class is its group; where one has, up to there. */
static void who_is_older_than_all_is_as_the_group(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    ehd_prior(1000, prior);
    wait_at(&c, 3, 5000);
    c.reused.n[9][ehd_bucket(100)] = 40;
    ehd_ranks(&c, prior, &rank);
    for (unsigned b = ehd_bucket(5000) + 1; b < EHD_BUCKETS; b++)
        assert_true(rank.n[3][b] == rank.n[0][b] && rank.n[9][b] == rank.n[0][b] &&
                    rank.n[0][b] > 0);
    assert_true(rank.n[9][ehd_bucket(90)] > rank.n[0][ehd_bucket(90)]);
    assert_true(rank.n[3][ehd_bucket(90)] < rank.n[0][ehd_bucket(90)]);
}

/* A third of the second epoch of 1000 ticks, in another order than the first: nobody was read
 * again yet at the age of those that wait since its beginning, and they are not the ones to go. */
static void in_the_second_epoch_who_waited_longest_is_worth_most(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    for (uint32_t place = 0; place < 1000; place += 20)
        for (uint32_t again = 0; again < 1000; again += 20) {
            uint32_t since = 1000 - place;
            if (again >= 300) {
                wait_at(&c, 0, since + 300);
                continue;
            }
            c.reused.n[0][ehd_bucket(since + again)]++;
            wait_at(&c, 22, 300 - again);
        }
    ehd_prior(800, prior);
    ehd_ranks(&c, prior, &rank);
    float fresh = fmaxf(rank.n[22][0], rank.n[25][0]);
    for (uint32_t age = 310; age < 1300; age += 10)
        assert_true(rank.n[0][ehd_bucket(age)] > fresh);
    assert_true(rank.n[0][ehd_bucket(1299)] > 1.5f * fresh);
}

/* Epochs of 1000 ticks, each in an order of its own; then something else is read between, and the
 * last that wait grow older than any did before they were read. */
static void who_waits_longer_than_any_did_in_shuffled_epochs_is_worth_most(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    for (uint32_t place = 0; place < 1000; place += 20)
        for (uint32_t again = 0; again < 1000; again += 20)
            c.reused.n[23][ehd_bucket(1000 - place + again)]++;
    for (uint32_t age = 30; age < 1400; age += 30)
        wait_at(&c, 26, age);
    for (uint32_t age = 1500; age < 2400; age += 300)
        wait_at(&c, 23, age);
    ehd_prior(800, prior);
    ehd_ranks(&c, prior, &rank);
    float fresh = fmaxf(rank.n[23][0], rank.n[26][0]);
    for (uint32_t age = 1500; age < 2800; age += 50)
        assert_true(rank.n[23][ehd_bucket(age)] > fresh);
}

/* The twelve chunks that wait longest were read together: they say no more than a few of them. */
static void one_object_that_waits_is_no_proof(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    for (uint32_t age = 1000; age < 1700; age += 50)
        c.reused.n[0][ehd_bucket(age)] += 3;
    for (unsigned n = 0; n < 12; n++)
        wait_at(&c, 0, 2040);
    ehd_prior(800, prior);
    ehd_ranks(&c, prior, &rank);
    assert_true(rank.n[0][ehd_bucket(2040)] > 1.2f * rank.n[0][0]);
}

/* Four chunks of one object came back soon after a long interval. */
static float worth_of_a_class_of_four(unsigned others)
{
    static struct ehd_counts rank;
    static struct ehd_curve c;
    double prior[EHD_BUCKETS];

    c = (struct ehd_curve){0};
    for (uint32_t age = 500; age < 1500; age += 10)
        c.reused.n[26][ehd_bucket(age)] += (float)others / 100;
    c.reused.n[29][ehd_bucket(200)] = 4;
    ehd_prior(800, prior);
    ehd_ranks(&c, prior, &rank);
    return rank.n[29][0] / rank.n[26][0];
}

static void a_class_is_believed_the_more_the_more_its_group_was_read(void **state)
{
    (void)state;
    float few = worth_of_a_class_of_four(400), many = worth_of_a_class_of_four(40000);

    assert_true(few < .8f * many);
}

static void what_was_given_up_is_worth_little(void **state)
{
    (void)state;
    static struct ehd_curve c;
    static struct ehd_counts rank;
    double prior[EHD_BUCKETS];

    c.lost.n[0][EHD_BUCKETS - 1] = 1000;
    c.reused.n[1][10] = 1000;
    ehd_prior(1000, prior);
    ehd_ranks(&c, prior, &rank);
    assert_true(rank.n[0][0] < rank.n[1][0] / 50);
    assert_true(rank.n[0][40] < .1f / 4000);
}

/* The best horizon by trying them all. */
static double searched(const double *hazard, unsigned from)
{
    struct run own = run_through(width_of(from) / 2, hazard[from] / 2);
    own.time += .5;
    double best = own.hits / own.time;

    for (unsigned b = from + 1; b < EHD_BUCKETS; b++) {
        struct run next = run_through(width_of(b), hazard[b]);
        own = run_append(own, &next);
        best = fmax(best, own.hits / own.time);
    }
    return best;
}

static void ranks_are_those_of_the_best_horizons(void **state)
{
    (void)state;
    uint64_t random = 1;

    for (unsigned round = 0; round < 300; round++) {
        double hazard[EHD_BUCKETS];
        float rank[EHD_BUCKETS];
        for (unsigned b = 0; b < EHD_BUCKETS; b++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            double u = (double)(random >> 40) / (1 << 24);
            hazard[b] = round % 3 == 0 ? u * u * u : u < .8 ? 1e-6 : u / 2;
        }
        struct behind behind = {.count = 0};
        unsigned part = round % (EHD_BUCKETS + 1); /* in two steps */
        ranks(hazard, part, EHD_BUCKETS, &behind, rank);
        ranks(hazard, 0, part, &behind, rank);
        for (unsigned b = 0; b < EHD_BUCKETS; b++) {
            double want = searched(hazard, b);
            assert_true(fabs((double)rank[b] - want) <= 1e-5 * want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_grow_with_the_age),
        cmocka_unit_test(a_new_group_has_the_prior_at_every_age),
        cmocka_unit_test(a_loop_is_worth_more_the_nearer_its_next_round),
        cmocka_unit_test(parts_of_a_bucket_that_are_ahead),
        cmocka_unit_test(as_many_as_the_sample_holds_are_counted),
        cmocka_unit_test(who_is_older_than_all_is_as_the_group),
        cmocka_unit_test(in_the_second_epoch_who_waited_longest_is_worth_most),
        cmocka_unit_test(who_waits_longer_than_any_did_in_shuffled_epochs_is_worth_most),
        cmocka_unit_test(one_object_that_waits_is_no_proof),
        cmocka_unit_test(a_class_is_believed_the_more_the_more_its_group_was_read),
        cmocka_unit_test(what_was_given_up_is_worth_little),
        cmocka_unit_test(ranks_are_those_of_the_best_horizons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
