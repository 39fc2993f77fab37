package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"dynmo/src/cost"
	"dynmo/src/files"
)

// networkFile is the content of a network's TOML file, before its numbers are checked.
type networkFile struct {
	Node         *linkFile `toml:"node"`
	Between      *linkFile `toml:"between"`
	RanksPerNode int       `toml:"ranks_per_node"`
	Delay        struct {
		Most any   `toml:"most"`
		Seed int64 `toml:"seed"`
	} `toml:"delay"`
	Slow any `toml:"slow"`
}

type linkFile struct {
	Latency   any `toml:"latency_seconds"`
	Bandwidth any `toml:"bandwidth_bytes"`
}

// mostDelay is the largest allowed factor by which a message is delayed.
const mostDelay = 1000

// mostRanks bounds the ranks that a file may name. No machine has that many, and the bound keeps a
// typing error from taking much memory.
const mostRanks = 1 << 20

// ReadNetwork reads a description of a network in TOML:
//
//	ranks_per_node = 4           # 0 or absent: all ranks are on one node
//	slow = [1.0, 1.3]            # by world rank; or a table: slow = {17 = 1.3}
//	[node]                       # between ranks of one node
//	latency_seconds = 3e-6
//	bandwidth_bytes = 3e11       # per second
//	[between]                    # between ranks of two; needed where there are two
//	latency_seconds = 8e-6
//	bandwidth_bytes = 2.5e10
//	[delay]                      # of every message, at random; may be absent
//	most = 4.0
//	seed = 1
//
// Errors call the file name. An error names file, field, value and the wanted value. Keys have
// exactly these names.
func ReadNetwork(name string, r io.Reader) (Network, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Network{}, fmt.Errorf("%s: %w", name, err)
	}
	var f networkFile
	if err := files.TOML(name, text, &f); err != nil {
		return Network{}, err
	}
	n := Network{PerNode: f.RanksPerNode}
	if err := n.fill(f); err != nil {
		return Network{}, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// fill sets the network from the file.
func (n *Network) fill(f networkFile) (err error) {
	if n.PerNode < 0 {
		return fmt.Errorf("ranks_per_node: %d, wanted at least 0", n.PerNode)
	}
	if n.Node, err = f.Node.link("node"); err != nil {
		return err
	}
	if f.Between != nil || n.PerNode > 0 {
		if n.Between, err = f.Between.link("between"); err != nil {
			return err
		}
	}
	if f.Delay.Most != nil {
		if n.Delay.Most, err = number("delay.most", f.Delay.Most, 1, mostDelay); err != nil {
			return err
		}
	}
	if f.Delay.Seed < 0 {
		return fmt.Errorf("delay.seed: %d, wanted at least 0", f.Delay.Seed)
	}
	n.Delay.Seed = uint64(f.Delay.Seed)
	n.Slow, err = slowness(f.Slow)
	return err
}

// link checks one table of the file.
func (f *linkFile) link(table string) (l Link, err error) {
	if f == nil {
		return l, fmt.Errorf("[%s]: missing, wanted latency_seconds and bandwidth_bytes", table)
	}
	l.Latency, err = number(table+".latency_seconds", f.Latency, 0, cost.MostLatency)
	if err == nil {
		l.Bandwidth, err = number(table+".bandwidth_bytes", f.Bandwidth, cost.LeastBandwidth, cost.MostBandwidth)
	}
	return l, err
}

// number returns the number in a field, and checks that it lies within [least, most].
func number(field string, value any, least, most float64) (float64, error) {
	x, ok := value.(float64)
	if whole, isInt := value.(int64); isInt {
		x, ok = float64(whole), true
	}
	switch {
	case value == nil:
		return 0, fmt.Errorf("%s: missing, wanted a number from %g to %g", field, least, most)
	case !ok || !(x >= least && x <= most):
		return 0, fmt.Errorf("%s: %#v, wanted a number from %g to %g", field, value, least, most)
	}
	return x, nil
}

// slowness reads the slowness of ranks from a list by rank, or from a table from rank to factor.
func slowness(value any) (list []float64, err error) {
	set := func(rank int, value any) error {
		for len(list) <= rank {
			list = append(list, 1)
		}
		list[rank], err = number(fmt.Sprintf("slow[%d]", rank), value, 1/cost.MostFactor, cost.MostFactor)
		return err
	}
	switch values := value.(type) {
	case nil:
	case []any:
		for rank, x := range values {
			if err := set(rank, x); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(values)) { // sorted, so that the same error is reported each time
			rank, err := strconv.Atoi(key)
			if err != nil || rank < 0 || rank >= mostRanks {
				return nil, fmt.Errorf("slow: rank %q, wanted an integer in [0, %d)", key, mostRanks)
			}
			if err := set(rank, values[key]); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("slow: %v, wanted a list of numbers or a table from rank to number", value)
	}
	return list, nil
}
