package sim

import (
	"reflect"
	"strings"
	"testing"

	"dynmo/src/comm"
)

const links = `
[node]
latency_seconds = 3e-6
bandwidth_bytes = 300_000_000_000
[between]
latency_seconds = 0
bandwidth_bytes = 2.5e10
`

func TestReadNetwork(t *testing.T) {
	node, between := Link{3e-6, 3e11}, Link{0, 2.5e10}
	for _, tc := range []struct {
		name, text string
		want       Network
	}{
		{"one node", "[node]\nlatency_seconds = 3e-6\nbandwidth_bytes = 3e11\n", Network{Node: node}},
		{"all", "ranks_per_node = 4\nslow = [1, 1.5]\n" + links + "[delay]\nmost = 4\nseed = 7\n",
			Network{Node: node, Between: between, PerNode: 4, Delay: comm.Delay{Most: 4, Seed: 7}, Slow: []float64{1, 1.5}}},
		{"slow ranks by name", links + "[slow]\n3 = 2\n1 = 1.5\n",
			Network{Node: node, Between: between, Slow: []float64{1, 1.5, 1, 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadNetwork("net.toml", strings.NewReader(tc.text))
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}

func TestReadNetworkRefuses(t *testing.T) {
	swap := func(old, now string) string { return strings.Replace(links, old, now, 1) }
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "net.toml: [node]: missing, wanted latency_seconds and bandwidth_bytes"},
		{"syntax", "[node]\nlatency_seconds = = 1\n", "net.toml:2: expected value but found '=' instead"},
		{"a type", swap("3e-6", `"fast"`), "net.toml: node.latency_seconds: \"fast\", wanted a number from 0 to 10"},
		{"a whole number that is none", "ranks_per_node = 1.5\n" + links, "net.toml:1: ranks_per_node: 1.5, wanted a whole number"},
		{"a number for a table", "node = 4", "net.toml:1: node: 4, wanted a table"},
		{"a number for delays", "delay = 3\n" + links, "net.toml:1: delay: 3, wanted a table"},
		{"a text for a seed", links + "[delay]\nseed = \"x\"\n", `net.toml:9: delay.seed: "x", wanted a whole number`},
		{"zero bandwidth", swap("2.5e10", "0"), "net.toml: between.bandwidth_bytes: 0, wanted a number from 1000 to 1e+15"},
		{"negative bandwidth", swap("2.5e10", "-1.0"), "net.toml: between.bandwidth_bytes: -1, wanted a number from 1000 to 1e+15"},
		{"NaN bandwidth", swap("2.5e10", "nan"), "net.toml: between.bandwidth_bytes: NaN, wanted a number from 1000 to 1e+15"},
		{"negative latency", swap("3e-6", "-3e-6"), "net.toml: node.latency_seconds: -3e-06, wanted a number from 0 to 10"},
		{"no latency", swap("latency_seconds = 3e-6", ""), "net.toml: node.latency_seconds: missing"},
		{"no bandwidth", swap("bandwidth_bytes = 2.5e10", ""), "net.toml: between.bandwidth_bytes: missing"},
		{"nodes without a link", "ranks_per_node = 2\n[node]\nlatency_seconds = 0\nbandwidth_bytes = 1e9\n",
			"net.toml: [between]: missing, wanted latency_seconds and bandwidth_bytes"},
		{"negative ranks", "ranks_per_node = -1\n" + links, "net.toml: ranks_per_node: -1, wanted at least 0"},
		{"unknown key", links + "bandwith_bytes = 1\n", "net.toml:8: between.bandwith_bytes: unknown key; the nearest is between.bandwidth_bytes"},
		{"a second spelling", swap("3e-6", "3e-6\nLatency_Seconds = 0.4"), "net.toml:4: node.Latency_Seconds: unknown key; the nearest is node.latency_seconds"},
		{"unknown table", links + "[links]\na = 1\n", "net.toml:8: links: unknown key; the nearest is delay"},
		{"key twice", links + "latency_seconds = 1\n", "net.toml:8: Key 'between.latency_seconds' has already been defined."},
		{"latency of minutes", swap("3e-6", "60"), "net.toml: node.latency_seconds: 60, wanted a number from 0 to 10"},
		{"link faster than any", swap("2.5e10", "1e300"), "net.toml: between.bandwidth_bytes: 1e+300, wanted a number from 1000 to 1e+15"},
		{"endless delay", links + "[delay]\nmost = 1e300\n", "net.toml: delay.most: 1e+300, wanted a number from 1 to 1000"},
		{"6,000 lists in each other", "slow = " + strings.Repeat("[", 6000), "net.toml:1: tables or lists more than 16 deep in each other, want settings"},
		{"small delay", links + "[delay]\nmost = 0.5\n", "net.toml: delay.most: 0.5, wanted a number from 1 to 1000"},
		{"NaN delay", links + "[delay]\nmost = nan\n", "net.toml: delay.most: NaN, wanted a number from 1 to 1000"},
		{"negative seed", links + "[delay]\nseed = -1\n", "net.toml: delay.seed: -1, wanted at least 0"},
		{"slow is a number", "slow = 2\n" + links, "net.toml: slow: 2, wanted a list of numbers or a table from rank to number"},
		{"a rank without speed", "slow = [1, 0]\n" + links, "net.toml: slow[1]: 0, wanted a number from 1e-06 to 1e+06"},
		{"a speed that is text", "slow = [1, \"x\"]\n" + links, "net.toml: slow[1]: \"x\", wanted a number from 1e-06 to 1e+06"},
		{"a rank that is none", links + "[slow]\nfirst = 2\n", `net.toml: slow: rank "first", wanted an integer in [0, 1048576)`},
		{"a rank too large", links + "[slow]\n1048576 = 2\n", `net.toml: slow: rank "1048576", wanted an integer in [0, 1048576)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadNetwork("net.toml", strings.NewReader(tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// FuzzReadNetwork: every accepted network can be simulated.
func FuzzReadNetwork(f *testing.F) {
	f.Add(links)
	f.Add("ranks_per_node = 4\nslow = [1, 1.5]\n" + links + "[delay]\nmost = 4\nseed = 7\n")
	f.Add(links + "[slow]\n3 = 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ReadNetwork("net.toml", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "net.toml:") {
				t.Fatalf("error without the file: %v", err)
			}
			return
		}
		for _, l := range []Link{n.Link(0, 0), n.Link(0, 1<<20)} {
			_, at := l.comm().Travel(0, 0, 1000, n.Delay.Factor(0, 1, 0, 0))
			if !(at >= 0) {
				t.Fatalf("%+v: a message arrives at %v", n, at)
			}
		}
		for rank, x := range n.Slow {
			if !(x > 0) {
				t.Fatalf("rank %d is %v times slower", rank, x)
			}
		}
	})
}
