/* test_cloud_flights.c - the authors' flight files of the cloud recipe: read, normalised,
 * generated, and trained on in phases. */
#include "base/err.h"
#include "plimsoll_hdf5.h"
#include "recipes/cloud/cloud.h"
#include "tests/datasets/hdf5_file.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/data/run_data.h"

#include <string.h>

/* ---- flights ---------------------------------------------------------------------------- */
enum { FRAMES = 20, ROWS = 12, COLS = 8, PROFILES = 40 };
#define BEGIN 1730246400.0 /* 30 October 2024, 0:00 UTC: day 304 */

/* A flight: every pixel of frame i is i, at second 10 i. The lidar measures every 5 seconds: 0.1
 * i km at frame i, land below frames 4 and 5, no cloud at frame 6, a high cloud at frame 7. */
static void write_flight(const char *dir, const char *name)
{
    static float signal[FRAMES * ROWS * COLS];
    double time[FRAMES], day[PROFILES * 2], zenith[FRAMES], azimuth[FRAMES];
    float base[PROFILES * 3], surface[PROFILES], ground[PROFILES];
    char path[3][512];
    for (int i = 0; i < FRAMES; i++) {
        for (int p = 0; p < ROWS * COLS; p++) signal[i * ROWS * COLS + p] = (float)(100 * i + p);
        time[i] = BEGIN + 10 * i;
        zenith[i] = 30 + i;
        azimuth[i] = 350 + i;
    }
    zenith[3] = (double)NAN;
    for (int i = 0; i < PROFILES; i++) {
        int frame = i / 2;
        day[2 * i] = day[2 * i + 1] = 304 + 5.0 * i / 86400;
        for (int k = 0; k < 3; k++) base[3 * i + k] = k ? 9 : (float)(0.1 * frame);
        if (i % 2) base[3 * i] = 1.95f; /* seconds from any frame */
        if (frame == 6) base[3 * i] = -9999;
        if (frame == 7) base[3 * i] = 5;
        surface[i] = 100;
        ground[i] = frame == 4 || frame == 5 ? 12 : 0;
    }
    static const char *const ends[] = {"camera.h5", "lidar_30oct24.hdf5", "nav.h5"};
    for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/%s_%s", dir, name, ends[i]);
    const char *f32 = "H5T_NATIVE_FLOAT_g", *f64 = "H5T_NATIVE_DOUBLE_g";
    const hdf5_field camera[] = {{"Product/Signal", f32, 3, {FRAMES, ROWS, COLS}, signal},
                                 {"Time/TimeUTC", f64, 1, {FRAMES}, time}};
    const hdf5_field lidar[] = {
        {"layer_descriptor/Profile_Decimal_Julian_Day", f64, 2, {PROFILES, 2}, day},
        {"layer_descriptor/Layer_Base_Altitude", f32, 2, {PROFILES, 3}, base},
        {"layer_descriptor/Lidar_Surface_Altitude", f32, 1, {PROFILES}, surface},
        {"layer_descriptor/DEM_Surface_Altitude", f32, 1, {PROFILES}, ground}};
    const hdf5_field nav[] = {{"nav/solarZenith", f64, 1, {FRAMES}, zenith},
                              {"nav/sunAzGrd", f64, 1, {FRAMES}, azimuth}};
    CHECK(hdf5_file_write(path[0], camera, 2) && hdf5_file_write(path[1], lidar, 4) &&
          hdf5_file_write(path[2], nav, 2));
}

/* The configuration of two flights a and b in dir, with further keys. */
static pl_status open_flights(const char *dir, const char *const *more, int n, pl_run **run,
                              void **data)
{
    char list[2048];
    const char *keys[12] = {"frames=3",
                            "height=10",
                            "width=8",
                            "data.first_row=2",
                            "data.contrast=0",
                            "data.standardise=false",
                            list};
    snprintf(list, sizeof list,
             "data.flights=%1$s=%2$s/a_camera.h5,%2$s/a_lidar_30oct24.hdf5,%2$s/a_nav.h5; "
             "b=%2$s/b_camera.h5,%2$s/b_lidar_30oct24.hdf5,%2$s/b_nav.h5",
             "a", dir);
    for (int i = 0; i < n; i++) keys[7 + i] = more[i];
    PL_TRY(pl_run_open("cloud/tiny", keys, 7 + n, run));
    return cloud_flights_open(pl_run_config(*run), data);
}

TEST(cloud_flights_split_samples_and_weights_by_flight)
{
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    char dir[400];
    snprintf(dir, sizeof dir, "%s", pl_test_dir());
    write_flight(dir, "a");
    write_flight(dir, "b");
    static const char *const apart[] = {"data.eval_flights=b", "data.heavy_flights=a",
                                        "data.heavy_factor=1.5", "data.flat_field=false"};
    pl_run *run = NULL;
    void *data = NULL;
    /* Labelled frames are 1 to 3 and 8 to 19 (frame 0 is below 0.1 km): 15 frames. Every fifth
     * is held out for evaluation. */
    CHECK_OK(open_flights(dir, apart + 3, 1, &run, &data));

    CHECK_INT(cloud_flights_size(data, PL_SUBSET_TRAIN), 2 * 12);
    CHECK_INT(cloud_flights_size(data, PL_SUBSET_EVAL), 2 * 3);
    cloud_flights_close(data);
    pl_run_free(run);

    CHECK_OK(open_flights(dir, apart, 4, &run, &data));
    CHECK_INT(cloud_flights_size(data, PL_SUBSET_TRAIN), 3 * 15);
    CHECK_INT(cloud_flights_size(data, PL_SUBSET_EVAL), 15);
    cloud_flights_close(data);
    pl_run_free(run);

    /* With other height limits: frames 1 to 3 only, and frame 7 too. */
    static const char *const low[] = {"data.eval_flights=b", "data.max_km=0.75"},
                             *const high[] = {"data.eval_flights=b", "data.max_km=6"};
    CHECK_OK(open_flights(dir, low, 2, &run, &data));
    CHECK_INT(cloud_flights_size(data, PL_SUBSET_TRAIN), 3);
    cloud_flights_close(data);
    pl_run_free(run);

    CHECK_OK(open_flights(dir, high, 2, &run, &data));
    CHECK_INT(cloud_flights_size(data, PL_SUBSET_TRAIN), 16);
    cloud_flights_close(data);
    pl_run_free(run);
}

/* A batch of one sample, as a recipe sees it. */
typedef struct one_sample {
    float frames[3 * 10 * 8], angles[2], target[1];
} one_sample;

static void *find_input(void *ctx, const char *name, pl_type *type)
{
    one_sample *b = ctx;
    (void)type;
    return strcmp(name, "frames") == 0   ? (void *)b->frames
           : strcmp(name, "angles") == 0 ? (void *)b->angles
                                         : (void *)b->target;
}

/* Labels in km, angles in degrees (a missing zenith is the flight's mean), frames between 0 and 1.
 */
TEST(cloud_flights_are_read_in_km_and_degrees)
{
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    static const char *const more[] = {"data.eval_flights=b", "data.flat_field=false"};
    static const int frame[] = {1, 2, 3, 8};
    char dir[400];
    pl_run *run = NULL;
    void *data = NULL;
    double mean = 0;
    snprintf(dir, sizeof dir, "%s", pl_test_dir());
    write_flight(dir, "a");
    write_flight(dir, "b");
    CHECK_OK(open_flights(dir, more, 2, &run, &data));
    for (int i = 0; i < FRAMES; i++) mean += i == 3 ? 0 : (30.0 + i) / (FRAMES - 1);
    for (int64_t i = 0; i < 4; i++) {
        one_sample b;
        pl_batch batch = {.find = find_input, .find_ctx = &b};
        CHECK_OK(cloud_flights_read(data, PL_SUBSET_TRAIN, &i, 1, &batch));
        CHECK_NEAR((double)b.target[0] * CLOUD_STD_KM + CLOUD_MEAN_KM, 0.1 * frame[i], 1e-5);
        CHECK_NEAR((double)b.angles[0] * CLOUD_ZENITH_STD + CLOUD_ZENITH_MEAN,
                   i == 2 ? mean : 30 + frame[i], 1e-4);
        CHECK_NEAR((double)b.angles[1] * CLOUD_AZIMUTH_STD + CLOUD_AZIMUTH_MEAN,
                   (350 + frame[i]) % 360, 1e-4);
        for (int p = 0; p < 80; p++) CHECK_NEAR((double)b.frames[p], p / 79.0, 1e-5);
    }
    cloud_flights_close(data);
    pl_run_free(run);
}

/* seed_compat reads frames without a flat field: the original's flat field has no effect. */
TEST(cloud_seed_compat_reads_frames_without_a_flat_field)
{
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    static const char *const keys[] = {"data.flat_field=true", "data.flat_field=false",
                                       "seed_compat=true"};
    char dir[400];
    one_sample b[3];
    snprintf(dir, sizeof dir, "%s", pl_test_dir());
    write_flight(dir, "a");
    write_flight(dir, "b");
    memset(b, 0, sizeof b);
    for (int k = 0; k < 3; k++) {
        pl_run *run = NULL;
        void *data = NULL;
        int64_t first = 0;
        pl_batch batch = {.find = find_input, .find_ctx = &b[k]};
        CHECK_OK(open_flights(dir, &keys[k], 1, &run, &data));
        CHECK_OK(cloud_flights_read(data, PL_SUBSET_TRAIN, &first, 1, &batch));
        cloud_flights_close(data);
        pl_run_free(run);
    }

    CHECK(memcmp(&b[0], &b[1], sizeof b[0]) != 0 && memcmp(&b[1], &b[2], sizeof b[0]) == 0);
}

/* Generated skies written as flights and read again have the labels, angles and frames of the
 * samples (frames scaled to a range of 1). One flight has the training samples, another the
 * evaluation samples. */
TEST(cloud_flights_that_are_generated_read_back_the_same)
{
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    static const char *const make[] = {"frames=3",         "height=10",      "width=8",
                                       "data.first_row=2", "data.samples=5", "data.eval_samples=2"};
    char dir[400], key[512];
    float sky[80];
    pl_run *run = NULL;
    void *data = NULL, *made = NULL;
    snprintf(dir, sizeof dir, "%s/made", pl_test_dir());
    CHECK_OK(pl_run_open("cloud/tiny", make, 6, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_generate_raw(run, dir, 0, 0, NULL, NULL));
    CHECK_OK(cloud_sky_open(pl_run_config(run), &made));
    snprintf(key, sizeof key, "data.flights=%s", dir);
    const char *const read[] = {key,
                                "frames=3",
                                "height=10",
                                "width=8",
                                "data.first_row=2",
                                "data.contrast=0",
                                "data.standardise=false",
                                "data.flat_field=false",
                                "data.eval_flights=12Feb25"};
    pl_run *reader = NULL;
    CHECK_OK(pl_run_open("cloud/tiny", read, 9, &reader));
    CHECK_OK(cloud_flights_open(pl_run_config(reader), &data));

    CHECK_INT(cloud_flights_size(data, PL_SUBSET_TRAIN), 5);
    CHECK_INT(cloud_flights_size(data, PL_SUBSET_EVAL), 2);

    for (int64_t i = 0; i < 7; i++) {
        pl_subset subset = i < 5 ? PL_SUBSET_TRAIN : PL_SUBSET_EVAL;
        int64_t sample = i < 5 ? i : i - 5;
        cloud_truth truth = cloud_sky_truth(subset, sample);
        one_sample b;
        pl_batch batch = {.find = find_input, .find_ctx = &b};
        CHECK_OK(cloud_flights_read(data, subset, &sample, 1, &batch));
        CHECK_NEAR((double)b.target[0] * CLOUD_STD_KM + CLOUD_MEAN_KM, truth.km, 1e-5);
        CHECK_NEAR((double)b.angles[0] * CLOUD_ZENITH_STD + CLOUD_ZENITH_MEAN, truth.zenith, 1e-4);
        CHECK_NEAR((double)b.angles[1] * CLOUD_AZIMUTH_STD + CLOUD_AZIMUTH_MEAN, truth.azimuth,
                   1e-3);
        for (int t = 0; t < 3; t++) {
            cloud_sky_frame(made, subset, sample, t, sky);
            float lo = sky[0], hi = sky[0];
            for (int p = 1; p < 80; p++) lo = fminf(lo, sky[p]), hi = fmaxf(hi, sky[p]);
            for (int p = 0; p < 80; p++)
                CHECK_NEAR((double)b.frames[80 * t + p], (double)((sky[p] - lo) / (hi - lo)), 1e-4);
        }
    }
    cloud_flights_close(data);
    cloud_sky_close(made);
    pl_run_free(reader);
    pl_run_free(run);
}

/* The authors' phases over generated flights, at toy sizes, from the command line. */
TEST(cloud_flights_train_through_the_authors_phases)
{
    if (!cli_bin()) return;
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
#define TOY                                                                                        \
 "frames=1 height=8 width=8 data.first_row=2 batch=2 'model.channels=[2, 2, 2]' 'model.dense=[4, 4]' model.film_hidden=4 "
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run("$P generate cloud/flights --raw --out %s/f --samples 40 --eval-samples 6 " TOY, d),
        0, "");
    cli_result r =
        cli_run("$P train cloud/flights --out %s/run data.flights=%s/f eval.batches=1 " TOY
                "phases.pretrain.until.epochs=1 phases.final.until.epochs=1",
                d, d);
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_RUN(cli_run("$P train cloud/tiny data.flights=%s/nowhere " TOY, d), 2, "flights.txt");
    CHECK_RUN(cli_run("$P generate cloud/tiny --raw --out %s/g data.flights=%s/f " TOY, d, d), 2,
              "unset data.flights");
}

/* On the command line: training works, and contradicting settings are refused with a reason. */
TEST(cloud_flights_train_and_refuse_mistakes_on_the_command_line)
{
    if (!cli_bin()) return;
    if (pl_hdf5_missing()) SKIP("libhdf5 is not installed");
    char dir[400], line[3000], list[1500];
    snprintf(dir, sizeof dir, "%s", pl_test_dir());
    write_flight(dir, "a");
    snprintf(list, sizeof list,
             "data.flights='a=%1$s/a_camera.h5,%1$s/a_lidar_30oct24.hdf5,%1$s/a_nav.h5'", dir);
    snprintf(
        line, sizeof line,
        "$P train cloud/tiny frames=3 height=10 width=8 data.first_row=2 train.steps=12 batch=4 %s",
        list);

    CHECK_RUN(cli_run("%s", line), 0, "12 steps");
    snprintf(line, sizeof line,
             "$P train cloud/tiny frames=3 height=11 width=8 data.first_row=2 %s", list);
    CHECK_RUN(cli_run("%s", line), 5, "need rows 2 to 13 of 8 columns");

    snprintf(line, sizeof line, "$P train cloud/tiny data.flights=a=x,y");
    CHECK_RUN(cli_run("%s", line), 2, "NAME=CAMERA,LIDAR,NAV");

    snprintf(line, sizeof line, "$P train cloud/tiny data.flights=a=/no/x.h5,y.h5,z.h5");
    CHECK_RUN(cli_run("%s", line), 5, "/no/x.h5");

    /* Missing flights; so few labels that a fifth of them is none (frames 2 and 3); only one
     * label (frame 3). */
    static const struct {
        const char *keys, *why;
        int code;
    } cases[] = {{"data.eval_flights=b",
                  "data.eval_flights=b: no name of the 1 flights matches; the first flight is a",
                  2},
                 {"data.heavy_flights=b", "data.heavy_flights=b", 2},
                 {"data.train_flights=b", "data.train_flights=b", 2},
                 {"data.eval_flights=a", "has a label", 5},
                 {"data.min_km=0.15 data.max_km=0.35", "12 steps", 0},
                 {"data.min_km=0.25 data.max_km=0.35", "no frame is left for evaluation", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(
            line, sizeof line,
            "$P train cloud/tiny frames=3 height=10 width=8 data.first_row=2 train.steps=12 batch=4 %s %s",
            list, cases[i].keys);
        CHECK_RUN(cli_run("%s", line), cases[i].code, cases[i].why);
    }
}
