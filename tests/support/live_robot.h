/* A live description for tests and benchmarks: a policy at 50 Hz on joints and a pose at 500 Hz, a force
 * at 1 kHz and a gripper at 50 Hz. Times are those of one clock; the force comes 1 ms late. */
#ifndef TRAJD_TESTS_LIVE_ROBOT_H
#define TRAJD_TESTS_LIVE_ROBOT_H

#define LIVE_ROBOT_SOURCE(stream, columns, kind, more)                                             \
    "{\"stream\": " stream ", \"columns\": " columns                                               \
    ", \"rule\": \"times\", \"lookahead_ns\": 0, \"kind\": \"" kind                                \
    "\", \"max_gap_ns\": -1, \"max_age_ns\": 9223372036854775807, \"missing\": \"error\"" more "}"
#define LIVE_ROBOT_OUTPUT(name, shape, from, rate, sources, more)                                  \
    "{\"name\": \"" name "\", \"role\": \"obs\", \"hidden\": false, \"dtype\": \"f32\", "          \
    "\"shape\": " shape ", \"from\": " from ", \"rate\": \"" rate "\", \"sources\": [" sources     \
    "]" more "}"

enum { LIVE_ROBOT_JOINTS, LIVE_ROBOT_POSITION, LIVE_ROBOT_TURN, LIVE_ROBOT_FORCE, LIVE_ROBOT_GRIP };

static const char live_robot[] =
    "{\"trajd_live\": 1, \"feed\": \"robot\", \"dataset\": \"robot\", \"fingerprint\": "
    "\"0000000000000000\", \"norm_digest\": \"0000000000000000\", \"pad\": \"edge\", "
    "\"anchor_clock\": null, \"anchor_rate\": \"50/1\", \"clocks\": ["
    "{\"name\": \"arm\", \"rate\": null, \"interval_ns\": 2000000, \"shift_ns\": 0}, "
    "{\"name\": \"force\", \"rate\": \"1000/1\", \"interval_ns\": 1000000, \"shift_ns\": "
    "-1000000}, "
    "{\"name\": \"grip\", \"rate\": null, \"interval_ns\": 20000000, \"shift_ns\": 0}], "
    "\"streams\": [{\"name\": \"joints\", \"clock\": 0, \"dtype\": \"f64\", \"shape\": [7]}, "
    "{\"name\": \"position\", \"clock\": 0, \"dtype\": \"f64\", \"shape\": [3]}, "
    "{\"name\": \"turn\", \"clock\": 0, \"dtype\": \"f64\", \"shape\": [4]}, "
    "{\"name\": \"force\", \"clock\": 1, \"dtype\": \"f32\", \"shape\": [6]}, "
    "{\"name\": \"grip\", \"clock\": 2, \"dtype\": \"f32\", \"shape\": [1]}], "
    "\"left_out\": [], \"next\": null, \"outputs\": [\n" LIVE_ROBOT_OUTPUT("obs/joints", "[10, 7]", "-9", "50/1", LIVE_ROBOT_SOURCE("0", "7", "linear", ""), ", \"scale\": [1, 2, 3, 4, 5, 6, 7], \"offset\": [0, 0, 0, 0, 0, 0, 1]") ",\n" LIVE_ROBOT_OUTPUT(
        "obs/pose", "[2, 9]", "-1", "50/1",
        LIVE_ROBOT_SOURCE("1", "3", "linear", "") ", " LIVE_ROBOT_SOURCE("2", "4", "slerp_xyzw",
                                                                         ""),
        ", \"row_dtype\": \"f64\", \"state\": 4, \"chain\": {\"frame\": \"anchor\", \"step\": "
        "\"anchor\", \"columns\": 7, \"output_columns\": 9, \"reference_columns\": 7, \"parts\": ["
        "{\"kind\": \"plain\", \"relative\": true, \"first\": 0, \"count\": 3, \"output_first\": "
        "0, \"output_count\": 3, \"reference_first\": 0, \"turned_by\": 1}, {\"kind\": "
        "\"rotation\", \"relative\": true, \"first\": 3, \"count\": 4, \"output_first\": 3, "
        "\"output_count\": 6, \"reference_first\": 3, \"from\": \"quat_xyzw\", \"to\": \"rot6d\", "
        "\"reference_form\": \"quat_xyzw\"}]}") ",\n" LIVE_ROBOT_OUTPUT("obs/force", "[25, 6]",
                                                                        "-24", "50/1",
                                                                        LIVE_ROBOT_SOURCE(
                                                                            "3", "6", "mean",
                                                                            ", \"mean_width\": "
                                                                            "20000000"),
                                                                        "") ",\n" LIVE_ROBOT_OUTPUT("obs/grip",
                                                                                                    "[1, 1]",
                                                                                                    "0",
                                                                                                    "50/1",
                                                                                                    LIVE_ROBOT_SOURCE(
                                                                                                        "4",
                                                                                                        "1",
                                                                                                        "previous",
                                                                                                        ""),
                                                                                                    "") ",\n"
                                                                                                        "{\"name\": \"obs/pose.relative_to\", \"role\": \"obs\", \"hidden\": true, \"dtype\": \"f32\", "
                                                                                                        "\"shape\": [1, 7], \"from\": 0, \"rate\": \"50/1\", \"row_dtype\": \"f64\", \"sources\": [" LIVE_ROBOT_SOURCE(
                                                                                                            "1",
                                                                                                            "3",
                                                                                                            "linear",
                                                                                                            "") ", " LIVE_ROBOT_SOURCE("2",
                                                                                                                                       "4",
                                                                                                                                       "slerp_xyzw",
                                                                                                                                       "") "]}\n]}";

#endif
