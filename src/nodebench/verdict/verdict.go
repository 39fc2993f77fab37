// Package verdict judges the nodes of a cluster: rows that nodes measured come in, a finding
// for each row goes out, which says whether the device is slow or faulty, and why. A row is
// held against a reference file and against the same row of the other nodes. The package
// measures nothing, so the same rows always get the same findings.
package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/trace"
)

// Status is how a measurement ended.
type Status string

// How a measurement ended. A check that could not be made is no failure.
const (
	Measured     Status = "measured"
	Faulty       Status = "faulty"        // the device reports a fault, which the note names
	TimedOut     Status = "timed out"     // the check did not end within its limit
	NotAvailable Status = "not available" // the check cannot be made here; the note says why
	Begun        Status = "begun"         // in records: the check began
	Ended        Status = "ended"         // in records: the process has made its checks
)

// Row is what one check found on one device of a node.
type Row struct {
	Node   string  `json:"node"`
	Device string  `json:"device"` // "host", "gpu0", …, or "net"
	Model  string  `json:"model"`  // the product: rows of one model are peers
	Check  string  `json:"check"`
	Value  float64 `json:"value"` // in Unit, the median of the rounds
	Low    float64 `json:"low,omitempty"`
	High   float64 `json:"high,omitempty"` // quartiles
	Unit   string  `json:"unit,omitempty"`
	Status Status  `json:"status"`
	Wrong  int     `json:"wrong,omitempty"` // elements of the result that were wrong
	Note   string  `json:"note,omitempty"`
	Digest string  `json:"digest,omitempty"` // of the bits of a result that equal devices share
}

// Name returns what was looked at: "node3 gpu0 copy".
func (r Row) Name() string { return r.Node + " " + r.Device + " " + r.Check }

// direction returns 1 where a larger value is better, -1 where a smaller one is, and 0 where
// the value only describes the device.
func (r Row) direction() int {
	switch r.Unit {
	case "GFLOP/s", "TFLOP/s", "GB/s", "MHz", "links", "lanes", "GPUs":
		return 1
	case "us":
		return -1
	}
	return 0
}

// isCount reports whether the value counts things, and all of them must be there.
func (r Row) isCount() bool { return r.Unit == "links" || r.Unit == "lanes" || r.Unit == "GPUs" }

// lack returns the least part of the peers' speed that the device lacks if it is slow.
func (r Row) lack() float64 {
	if strings.HasPrefix(r.Check, "file_") {
		return slowFilesBy
	}
	return slowBy
}

// speed returns the value as a number that is larger for a better device.
func (r Row) speed() float64 {
	if r.direction() < 0 {
		return 1 / r.Value
	}
	return r.Value
}

// State is what a finding says, the worst last.
type State int

// States of a finding.
const (
	unjudged State = iota // described, or not available
	healthy
	slow
	invalid // the result is wrong, whatever the rate
	failed  // a fault, a check without an end, or a node without an answer
)

var stateNames = []string{"-", "ok", "SLOW", "INVALID", "FAULTY"}

func (s State) String() string { return stateNames[s] }

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames, string(text))
	if i < 0 {
		return fmt.Errorf("state %q, want one of %s", text, strings.Join(stateNames, ", "))
	}
	*s = State(i)
	return nil
}

// Finding is a row with its verdict.
type Finding struct {
	Row
	State  State   `json:"state"`
	Ratio  float64 `json:"ratio,omitempty"` // the device's speed over the median of its peers; 0 without peers
	Score  float64 `json:"score,omitempty"` // how many spreads of its peers the device is slower
	Reason string  `json:"reason,omitempty"`
}

const (
	// fewestPeers is from how many nodes on peers judge: the median of fewer can be moved
	// by two of them.
	fewestPeers = 5
	// outlier is the score from which on a device is slow (Leys et al. 2013, Detecting
	// outliers: use absolute deviation around the median, section 4). Suspects are measured again.
	outlier = 2.5
	// slowBy is the least part of the peers' speed that a slow device lacks. It is the floor
	// on their spread, without which one device of a very even partition is always an outlier.
	// Files have a larger one: their rate depends on who else uses the file system.
	slowBy, slowFilesBy = 0.2, 0.5
	// normal makes the median of absolute deviations an estimate of a standard deviation.
	normal = 1.4826
)

// Judge returns a finding for each row, and one for each of the expected nodes that has no row.
// reference may be nil. Its rows are in the order of the given ones.
func Judge(rows []Row, reference *Reference, expected []string) []Finding {
	findings := make([]Finding, len(rows))
	peers := map[[3]string][]int{}
	for i, r := range rows {
		findings[i] = judged(r, reference)
		if r.comparable() {
			key := [3]string{r.class(), r.Model, r.Check}
			peers[key] = append(peers[key], i)
		}
	}
	for _, list := range peers {
		compare(findings, list)
	}
	compareDigests(findings)
	return append(findings, absent(rows, expected)...)
}

// comparable reports whether the row has a speed that can be held against others.
func (r Row) comparable() bool {
	return r.Status == Measured && r.Wrong == 0 && r.direction() != 0 && r.Value > 0 && !math.IsInf(r.Value, 0)
}

// judged returns the finding of a row by itself and against the reference.
func judged(r Row, reference *Reference) Finding {
	f := Finding{Row: r}
	switch {
	case r.Status == Faulty:
		f.State, f.Reason = failed, r.Note
	case r.Status == TimedOut:
		f.State, f.Reason = failed, "ran out of time"
		if r.Note != "" {
			f.Reason += ": " + r.Note
		}
	case r.Status != Measured:
		f.Reason = cmp.Or(r.Note, string(NotAvailable))
	case r.Wrong > 0:
		f.State, f.Reason = invalid, fmt.Sprintf("%d elements of the result are wrong", r.Wrong)
	default:
		f.State, f.Reason = reference.judge(r)
	}
	return f
}

// typical returns the median of speeds of one check and their spread. A slow device lacks at least
// outlier of the spread (see compare).
func typical(speeds []float64, lack float64) (median, spread float64) {
	median = trace.Median(speeds)
	deviations := make([]float64, len(speeds))
	for k, x := range speeds {
		deviations[k] = math.Abs(x - median)
	}
	return median, max(normal*trace.Median(deviations), lack/outlier*median)
}

// compare holds the rows of one check on devices of one model against each other. With the
// speeds x of all, their median m and d the median of |x - m|,
//
//	score = (m - x) / max(1.4826·d, lack/outlier·m)
//
// (Leys et al. 2013, with a floor on the spread). A device is slow from a score of
// outlier on. Rows of fewer than fewestPeers nodes are left as they are.
func compare(findings []Finding, list []int) {
	nodes := map[string]bool{}
	speeds := make([]float64, len(list))
	for k, i := range list {
		nodes[findings[i].Node] = true
		speeds[k] = findings[i].speed()
	}
	if len(nodes) < fewestPeers {
		return
	}
	median, spread := typical(speeds, findings[list[0]].lack())
	for k, i := range list {
		f := &findings[i]
		f.Ratio, f.Score = speeds[k]/median, (median-speeds[k])/spread
		isSlow := f.Score >= outlier
		if f.isCount() {
			isSlow = speeds[k] < median
		}
		switch {
		case isSlow:
			f.State = max(f.State, slow)
			peers := fmt.Sprintf("%.0f %% of the speed of its peers", 100*f.Ratio)
			f.Reason = strings.TrimPrefix(f.Reason+"; "+peers, "; ")
		case f.State == unjudged:
			f.State = healthy
		}
	}
}

// compareDigests finds devices whose results have other bits than those of most devices of
// their model. Of two devices that differ both are named.
func compareDigests(findings []Finding) {
	counts := map[[2]string]map[string]int{}
	key := func(f Finding) [2]string { return [2]string{f.Model, f.Check} }
	for _, f := range findings {
		if f.Digest != "" {
			if counts[key(f)] == nil {
				counts[key(f)] = map[string]int{}
			}
			counts[key(f)][f.Digest]++
		}
	}
	for i := range findings {
		f := &findings[i]
		if f.Digest == "" {
			continue
		}
		same, all := counts[key(*f)][f.Digest], 0
		for _, n := range counts[key(*f)] {
			all += n
		}
		switch {
		case f.State == invalid:
			f.Reason = fmt.Sprintf("%d bursts of products had other bits than the first: silent corruption", f.Wrong)
		case 2*same <= all && all > 1:
			f.State, f.Reason = invalid, fmt.Sprintf("%d of %d equal devices have the bits of this one: silent corruption", same, all)
		default:
			f.State = max(f.State, healthy)
		}
	}
}

// absent returns a finding for each expected node that measured nothing.
func absent(rows []Row, expected []string) []Finding {
	var findings []Finding
	for _, node := range expected {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Node == node }) {
			findings = append(findings, Finding{
				Row:   Row{Node: node, Device: "node", Check: "answer", Status: Faulty, Note: "the node did not answer"},
				State: failed, Reason: "the node did not answer",
			})
		}
	}
	return findings
}

// Bad returns the names of the nodes with a finding that is worse than healthy, the worst first.
func Bad(findings []Finding) []string {
	var names []string
	for _, f := range worstFirst(findings) {
		if !slices.Contains(names, f.Node) {
			names = append(names, f.Node)
		}
	}
	return names
}

// worstFirst returns the findings that are worse than healthy, the worst first.
func worstFirst(findings []Finding) []Finding {
	bad := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.State <= healthy })
	slices.SortFunc(bad, worse)
	return bad
}

// worse orders findings, the worst first.
func worse(a, b Finding) int {
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Check, b.Check))
}
