package main

import "testing"

// Law 1 over kinds of change, as a user sees it: four processes, of which two hold inner
// stages alone, learn to the last bit what one stage learns.
func TestTrainKindsChangeNothing(t *testing.T) {
	four.need(t)
	dir := folder(t, "[balance]\nby = \"param\"\nevery = \"2\"\n[freeze]\nwhen = \"step\"\nstep = 6\nlayers = 2\n"+
		"[attention]\nbuckets = 4\n[exit]\nshare = 0.6\nstart = 2\nuntil = 8\n[mod]\nroute = \"predictor\"\n")
	for _, kind := range []string{"freeze+attention", "exit+mod"} {
		t.Run(kind, func(t *testing.T) {
			of := sets("dynamic.kind=" + kind)
			want := alone.run(t, dir, training(append(of, sets("parallel.stages=1")...)...)...)
			weights(t, want)
			if got := four.run(t, dir, training(of...)...); got.status != exitDone || got.stdout != want.stdout {
				t.Errorf("status %d, ends with %q, want %q: %s", got.status, got.stdout, want.stdout, got.stderr)
			}
		})
	}
}
