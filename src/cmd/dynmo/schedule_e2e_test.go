package main

import "testing"

// TestTrainSchedulesChangeNothing is law 1 over schedules as a user sees it. Two ranks under
// mpirun, with moving layers, learn the same bits as one rank with 1F1B. That holds for any order
// of work and any number of chunks. Package launch tests the kinds of schedule over processes.
func TestTrainSchedulesChangeNothing(t *testing.T) {
	pair := world{2}
	pair.need(t)
	dir := folder(t, "[balance]\nevery = \"3\"\n")
	// Two stages, four microbatches, a V of two chunks.
	write(t, dir+"/vee.csv", "0F0,0F1,3F0,3I0,3F1,3I1,0F2,0I0,0F3,0I1,3W0,3F2,3I2,3W1,0W0,3F3,3I3,0I2,0W1,0I3,3W2,3W3,0W2,0W3\n"+
		"1F0,1F1,2F0,2F1,2I0,1I0,2I1,1I1,1F2,2F2,2W0,1F3,2F3,2I2,1I2,2W1,2I3,1I3,1W0,1W1,2W2,2W3,1W2,1W3\n")
	want := alone.run(t, dir, training(sets("parallel.stages=1")...)...)
	finalWeights(t, want)
	for _, kind := range []string{"list", "auto", "file"} {
		t.Run(kind, func(t *testing.T) {
			more := sets("parallel.stages=2", "schedule.kind="+kind)
			if kind == "file" {
				more = append(more, sets("schedule.file=vee.csv")...)
			}
			if got := pair.run(t, dir, training(more...)...); got.status != exitDone || got.stdout != want.stdout {
				t.Errorf("status %d, ends with %q, want %q: %s", got.status, got.stdout, want.stdout, got.stderr)
			}
		})
	}
}
