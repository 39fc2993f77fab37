package search

import "dynmo/src/schedule"

// Kinds are the schedules that settings alone describe, without a file: what plans
// are compared over.
var Kinds = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved,
	schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV, schedule.KindZBInterleaved, schedule.KindList,
}
