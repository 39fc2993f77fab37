// Package verdict says, after a run, how much faster the run was because layers moved.
//
// In: the costs and layouts that one or several finished runs recorded (record.Series), and a
// search.Problem of each run's settings. Out: a Result for each run, with the simulated seconds of the
// run in three cases: the layouts that it used, one static layout throughout, and the best layouts.
//
// Invariants: all cases of a Result have the same costs of layers. Compare gives all its runs the
// same costs, so its runs must have done equal work (see DescribeWork). Results are deterministic: the
// random draws have fixed seeds.
//
// Words: a phase is consecutive steps with one model, one layout and one table of costs. A sample is
// the seconds that one layer took for one microbatch of a measured step.
//
// Others rely on the following, so do not change it alone. The JSON names of Result are in records.
// Log, tables and report print Speedup, Ceiling and the range from Low to High as defined here. Free
// to change: how draws are made, and how many phases are simulated.
package verdict
