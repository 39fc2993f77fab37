package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/fault"
	"dynmo/src/record"
	"dynmo/src/tensor"
)

// TestKilled: a process is killed at any moment while it writes a checkpoint. The newest whole
// checkpoint is the new one or the one before, never a mixture. The next start removes an
// unfinished one.
func TestKilled(t *testing.T) {
	expect.NewFault(t, "F04", "")
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	dir := filepath.Join(run, record.CheckpointDir)
	save(t, dev, s, dir, 10, 2)
	var mutex sync.Mutex
	left := map[fault.Phase][]string{} // what was there
	saveBy(t, dev, s, dir, 20, 2, func(phase fault.Phase) {
		mutex.Lock()
		defer mutex.Unlock()
		if len(left[phase]) < 9 {
			at := t.TempDir()
			expect.OK(t, os.CopyFS(at, os.DirFS(run)))
			left[phase] = append(left[phase], at)
		}
	})
	for i, phase := range fault.Phases() {
		want := 10
		if i >= slices.Index(fault.Phases(), fault.Renamed) {
			want = 20
		}
		if len(left[phase]) == 0 {
			t.Errorf("%s: not reached", phase)
		}
		for _, run := range left[phase] {
			expect.OK(t, clean(filepath.Join(run, record.CheckpointDir)))
			c, damaged, err := Newest(run)
			if err != nil || len(damaged) > 0 || c.Step != want {
				t.Errorf("%s: %+v, damaged %v, error %v; want step %d", phase, c, damaged, err, want)
			}
			if entries, err := filepath.Glob(filepath.Join(run, record.CheckpointDir, "*"+unfinished)); len(entries) > 0 || err != nil {
				t.Errorf("%s: left behind: %v (%v)", phase, entries, err)
			}
		}
	}
}
