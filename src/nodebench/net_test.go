package nodebench

import (
	"fmt"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// overNet measures over goroutines. after may change the data that a plain exchange received.
func overNet(t *testing.T, lengths []int64, after func(in tensor.Mem)) []Result {
	t.Helper()
	var results []Result
	err := local.Run(2, func(tr comm.Transport) error {
		world, dev := comm.New(tr, comm.Options{}), devcpu.New(device.NewWall())
		plain := func(peer int, out, in tensor.Mem, messages int) (float64, error) {
			seconds, err := comm.PingPong(world, peer, out, in, messages)
			after(in)
			return seconds, err
		}
		got, err := Net(world, plain, ref.New(tensor.F32), dev, lengths, Rounds{Count: 2})
		if err != nil {
			return err
		}
		if tr.Rank() == 0 {
			results = got
		} else if got != nil {
			return fmt.Errorf("rank 1 has %d figures", len(got))
		}
		if used := dev.Used(); used != 0 {
			return fmt.Errorf("%d bytes were not freed", used)
		}
		return nil
	})
	expect.OK(t, err)
	return results
}

func TestNet(t *testing.T) {
	var names []string
	for _, r := range overNet(t, []int64{64, 1 << 20}, func(tensor.Mem) {}) {
		names = append(names, r.Name+" "+r.Unit)
		if r.Wrong != 0 || r.Value <= 0 || r.OK != (r.Value >= r.Reach) {
			t.Errorf("%+v", r)
		}
		reach := map[string]float64{
			"net/message_ratio_1MiB": 0.9, "net/migrate_ratio_dense": 0.8, "net/migrate_ratio_csr": 0.8,
		}[r.Name]
		if r.Reach != reach {
			t.Errorf("%s: reach %v, want %v", r.Name, r.Reach, reach)
		}
	}
	want := `net/message_c_64B us
net/message_64B us
net/message_ratio_64B ratio
net/message_c_1MiB GB/s
net/message_1MiB GB/s
net/message_ratio_1MiB ratio
net/migrate_c_dense GB/s
net/migrate_first_dense GB/s
net/migrate_dense GB/s
net/migrate_ratio_dense ratio
net/migrate_c_csr GB/s
net/migrate_csr GB/s
net/migrate_ratio_csr ratio`
	if got := strings.Join(names, "\n"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestNetFindsWrongMessages: a word that changes on the way makes all figures of its messages
// invalid.
func TestNetFindsWrongMessages(t *testing.T) {
	results := overNet(t, []int64{4096}, func(in tensor.Mem) { tensor.Of[uint64](in)[7]++ })
	for _, r := range results {
		layer := r.Name == "net/migrate_first_dense" || r.Name == "net/migrate_dense" || r.Name == "net/migrate_csr"
		spoiled := !layer // other figures include C's messages
		if spoiled != (r.Wrong > 0) || spoiled != (r.Verdict() == "INVALID") {
			t.Errorf("%+v", r)
		}
	}
}

// TestNetFindsWrongLayers: a layer that arrives with other bits is wrong. Here the owner changes it
// first.
func TestNetFindsWrongLayers(t *testing.T) {
	err := local.Run(2, func(tr comm.Transport) error {
		dev := devcpu.New(device.NewWall())
		n := network{bench: newBench(ref.New(tensor.F32), dev), world: comm.New(tr, comm.Options{})}
		m, err := n.newMove(true)
		if err != nil {
			return err
		}
		defer func() { m.stage.Free() }()
		before, err := m.hash()
		if err != nil {
			return err
		}
		if layer := m.stage.Layer(movedLayer); layer != nil {
			tensor.Of[uint32](layer.Sections()[1].Mem)[3] ^= 1
		}
		if _, err := m.timed(moveOwners[0], moveOwners[1]); err != nil {
			return err
		}
		if err := m.compare(before); err != nil {
			return err
		}
		if m.wrong != 1 {
			return fmt.Errorf("%d migrations were wrong, want 1", m.wrong)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNetLengths(t *testing.T) {
	if got := fmt.Sprint(NetLengths(64, 5000)); got != "[64 256 1024 4096]" {
		t.Error(got)
	}
	for length, want := range map[int64]string{64: "64B", 4096: "4KiB", 5000: "5000B", 1 << 20: "1MiB", 3 << 19: "1536KiB"} {
		if got := Size(length); got != want {
			t.Errorf("%d: %s, want %s", length, got, want)
		}
	}
}
