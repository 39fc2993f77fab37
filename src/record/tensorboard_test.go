package record

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/expect"
)

// TestMaskedCRC: the value that TensorBoard's own test of its reader wants of these
// bytes (tensorboard/data/server/masked_crc.rs).
func TestMaskedCRC(t *testing.T) {
	if got := maskedCRC([]byte("\x1a\x11CRC test, one two")); got != 0x5794d08a {
		t.Errorf("%#x, want 0x5794d08a", got)
	}
}

// TestBoardGolden: a version at 1 s, and at 2 s the step 7 with loss 2.5, by the layouts
// of tensorboard/compat/proto/event.proto and summary.proto.
func TestBoardGolden(t *testing.T) {
	var b board
	b.record(appendText(appendWall(nil, time.Unix(1, 0)), 3, boardVersion))
	event := append(appendWall(nil, time.Unix(2, 0)), 2<<3, 7)
	b.record(appendMessage(event, 5, appendMessage(nil, 1, scalar{tag: "loss", value: 2.5}.append(false))))
	const want = "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a" +
		"1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f73731500002040c2dfec60"
	if got := hex.EncodeToString(b.buffer); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// field is a field of a protocol buffer: a number, or the bytes of a message or text.
type field struct {
	number int
	bits   uint64
	bytes  []byte
}

// fields reads a message of protocol buffers.
func fields(t *testing.T, message []byte) []field {
	t.Helper()
	var list []field
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		message = message[n:]
		f := field{number: int(key >> 3)}
		switch key & 7 {
		case 0:
			f.bits, n = binary.Uvarint(message)
		case 1:
			f.bits, n = binary.LittleEndian.Uint64(message), 8
		case 2:
			length, prefix := binary.Uvarint(message)
			n = prefix + int(length)
			f.bytes = message[prefix:n]
		case 5:
			f.bits, n = uint64(binary.LittleEndian.Uint32(message)), 4
		default:
			t.Fatalf("wire type of key %d", key)
		}
		list, message = append(list, f), message[n:]
	}
	return list
}

// shown returns the numbers that TensorBoard reads from a file: a line for each, in the file's
// order, with its metadata if there are any.
type shown struct{ lines []string }

// readBoard reads a file like TensorBoard: records with valid checksums, up to one that is cut off.
func readBoard(t *testing.T, file []byte) (s shown) {
	t.Helper()
	for first := true; len(file) >= 12; first = false {
		length := binary.LittleEndian.Uint64(file)
		if binary.LittleEndian.Uint32(file[8:]) != maskedCRC(file[:8]) {
			t.Fatal("checksum of a length")
		}
		if uint64(len(file)) < 12+length+4 {
			return s
		}
		data := file[12 : 12+length]
		if binary.LittleEndian.Uint32(file[12+length:]) != maskedCRC(data) {
			t.Fatal("checksum of data")
		}
		s.event(t, data, first)
		file = file[12+length+4:]
	}
	return s
}

// event reads an Event. The first one of a file holds its version alone.
func (s *shown) event(t *testing.T, data []byte, first bool) {
	t.Helper()
	wall, step := 0.0, uint64(0)
	for _, f := range fields(t, data) {
		switch {
		case f.number == 1:
			wall = math.Float64frombits(f.bits)
		case f.number == 2:
			step = f.bits
		case first && f.number == 3:
			s.lines = append(s.lines, fmt.Sprintf("%s at %.3f", f.bytes, wall))
		case !first && f.number == 5:
			for _, v := range fields(t, f.bytes) {
				s.lines = append(s.lines, fmt.Sprintf("%.3f step %d %s", wall, step, value(t, v.bytes)))
			}
		default:
			t.Fatalf("field %d of an Event, first %v", f.number, first)
		}
	}
}

// value reads a Summary.Value.
func value(t *testing.T, data []byte) string {
	t.Helper()
	var tag, about, tensor string
	var number float32
	for _, f := range fields(t, data) {
		switch f.number {
		case 1:
			tag = string(f.bytes)
		case 2:
			number = math.Float32frombits(uint32(f.bits))
		case 8:
			list := fields(t, f.bytes)
			if tensor = "a number"; list[0].bits == textType {
				tensor = string(list[2].bytes)
			}
		case 9:
			metadata := fields(t, f.bytes)
			plugin := fields(t, metadata[0].bytes)
			if len(metadata) == 2 {
				about = fmt.Sprintf(" (%s, class %d)", plugin[0].bytes, metadata[1].bits)
				if len(plugin) > 1 {
					about += hyperparameters(t, plugin[1].bytes)
				}
				break
			}
			about = fmt.Sprintf(" (%s, class %d: %s)", plugin[0].bytes, metadata[2].bits, metadata[1].bytes)
		default:
			t.Fatalf("field %d of a Value", f.number)
		}
	}
	if tensor != "" {
		return fmt.Sprintf("%s = %s%s", tag, tensor, about)
	}
	return fmt.Sprintf("%s = %v%s", tag, number, about)
}

// hyperparameters reads an HParamsPluginData with a SessionStartInfo, and returns some of its entries.
func hyperparameters(t *testing.T, data []byte) (text string) {
	t.Helper()
	for _, f := range fields(t, fields(t, data)[0].bytes) {
		if f.number != 1 {
			continue
		}
		entry := fields(t, f.bytes)
		value := fields(t, entry[1].bytes)[0]
		switch name := string(entry[0].bytes); name {
		case "train.steps":
			text += fmt.Sprintf(" %s %v", name, math.Float64frombits(value.bits))
		case "train.hash":
			text += fmt.Sprintf(" %s %v", name, value.bits)
		case "run.name", "balance.every", "moe.experts":
			text += fmt.Sprintf(" %s %s", name, value.bytes)
		}
	}
	return text
}

// TestBoardHasSettings: the file begins with the settings as text, and as hyperparameters of their types, but
// for those without effect.
func TestBoardHasSettings(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, "[run]\nname = \"x\"\n[train]\nsteps = 9\nhash = true\n[balance]\nkind = \"uniform\"\n", Provenance{Host: "a"})
	expect.OK(t, err)
	expect.OK(t, r.Close())
	list, err := filepath.Glob(filepath.Join(dir, boardPrefix+"*"))
	expect.OK(t, err)
	file, err := os.ReadFile(list[0])
	expect.OK(t, err)
	var got []string
	for _, line := range readBoard(t, file).lines[1:] {
		_, text, _ := strings.Cut(line, " step 0 ")
		got = append(got, text)
	}
	want := []string{
		"config.toml/text_summary =     [run]\n    name = \"x\"\n    [train]\n    steps = 9\n    hash = true\n    [balance]\n    kind = \"uniform\"\n     (text, class 2)",
		"_hparams_/session_start_info = a number (hparams, class 2) run.name x train.steps 9 train.hash 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestBoardCounts: what layers count has a curve for each layer, and a move its bytes.
func TestBoardCounts(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, "[model]\nfamily = \"llama\"\nsequence = 8\n[dynamic]\nkind = \"exit+moe\"\n", Provenance{Host: "a"})
	expect.OK(t, err)
	expect.OK(t, r.Step(Metrics{Step: 4, Clock: "wall", BatchSize: 2, Counts: []LayerCounts{
		{"exit.1", "exit", []int64{16, 4, 1, 0, 0, 0, 0}}, {"block.1", "experts", []int64{16, 0, 0, 0, 2, 6, 4, 4}},
	}}))
	expect.OK(t, r.Event(Event{Step: 4, Kind: Migrate, Bytes: 512, Detail: map[string]any{"layers": 3}}))
	expect.OK(t, r.Event(Event{Step: 4, Kind: Migrate, Bytes: 512, Detail: map[string]any{"refused": "no memory"}}))
	expect.OK(t, r.Close())
	list, err := filepath.Glob(filepath.Join(dir, boardPrefix+"*"))
	expect.OK(t, err)
	file, err := os.ReadFile(list[0])
	expect.OK(t, err)
	text := strings.Join(readBoard(t, file).lines, "\n") + "\n"
	for _, want := range []string{
		" step 5 tokens that leave/exit.1 = 25 (scalars, class 1: %, of all tokens of the step, by exit)\n",
		" step 5 fullest expert/block.1 = 1.5 (", " step 5 iteration-time = 0 (",
		" step 5 moved-bytes = 512 (", " step 5 moved-layers = 3 (",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(text, want), want, text)
		}
	}
}

// TestBoardReadsBack: what was added is on disk after the time between two writings,
// and the file of a killed run reads on.
func TestBoardReadsBack(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, "", Provenance{Host: "node1"})
	expect.OK(t, err)
	defer r.Close()
	list, err := filepath.Glob(filepath.Join(dir, boardPrefix+"*"))
	expect.OK(t, err)
	if len(list) != 1 || !regexp.MustCompile(`^events\.out\.tfevents\.\d{10}\.node1\.\d+\.0$`).MatchString(filepath.Base(list[0])) {
		t.Fatalf("files %v", list)
	}
	read := func() []string {
		file, err := os.ReadFile(list[0])
		expect.OK(t, err)
		return readBoard(t, file).lines
	}
	if got := read(); len(got) != 3 {
		t.Errorf("a run that has begun: %v, want its version and its settings twice", got)
	}
	at := time.Now().Truncate(time.Second)
	for step := range 3 {
		m := Metrics{
			Step: step, Clock: "virtual", Time: at.Add(time.Duration(step) * boardEvery), Loss: 2.5, GradNorm: Float(math.NaN()),
			LR: 0.25, BatchSize: 8, StepSeconds: 0.5, TokensPerSecond: 1024, BubbleRatio: 0.125, Imbalance: 0.75,
			Sparsity: 0.5, BalanceSeconds: 0.0625, BytesPerStage: []int64{16, 32}, JoulesPerToken: 0.375,
			Ranks: 4, Nodes: 2, Throughput: 0.9375,
		}
		if step > 0 { // the first scalar of a tag describes it
			m.ValidationLoss, m.ValidationPerplexity, m.ValidationSeconds = 2, 8, 0.5
		}
		expect.OK(t, r.Step(m))
	}
	got := read()
	killed, err := os.ReadFile(list[0])
	expect.OK(t, err)
	if cut := readBoard(t, killed[:len(killed)-1]).lines; len(cut) >= len(got) {
		t.Errorf("with a last record that is cut off: %d lines of %d", len(cut), len(got))
	}
	var want []string
	for step := range 3 {
		now := float64(at.Unix()) + boardEvery.Seconds()*float64(step)
		list := []struct{ text, about string }{
			{"lm loss = 2.5", "nats per token"},
			{"grad-norm = NaN", "norm of the gradient before clipping"},
			{"learning-rate = 0.25", "of the step"},
			{"batch-size = 8", "sequences"},
			{"iteration-time/virtual = 0.5", "seconds, clock=virtual"},
			{"tokens-per-second/virtual = 1024", "of all replicas, clock=virtual"},
			{"bubble-ratio = 0.125", "idle / (stages x makespan)"},
			{"imbalance = 0.75", "(largest - smallest) / mean load of the stages"},
			{"sparsity = 0.5", "share of prunable parameters that are pruned"},
			{"balance-time/virtual = 0.0625", "measuring, deciding and moving after the step: seconds, clock=virtual"},
			{"throughput/virtual = 0.0019377684", "TFLOP/s of a rank, counted as in the dense model, clock=virtual"}, // 512 tokens x 7569408 / 0.5 s / 4 ranks
			{"mem-allocated-bytes = 32", "of the stage with the most"},
		}
		if step > 0 {
			list = append(list, []struct{ text, about string }{
				{"lm loss validation = 2", "nats per token, of data that nothing is trained on"},
				{"lm loss validation ppl = 8", "perplexity: e to the validation loss"},
				{"validation-time/virtual = 0.5", "seconds, clock=virtual"},
			}...)
		}
		list = append(list, []struct{ text, about string }{
			{"ranks = 4", "that train, of all replicas"},
			{"nodes = 2", "with a rank that trains"},
			{"dense-throughput-share = 0.9375", "throughput of the step as a share of the dense model's"},
			{"joules-per-token = 0.375", "of all GPUs since the run was last started"},
		}...)
		for _, v := range list {
			line := fmt.Sprintf("%.3f step %d %s", now, step+1, v.text)
			if validation := strings.Contains(v.text, "validation"); step == 0 || step == 1 && validation {
				line += " (scalars, class 1: " + v.about + ")"
			}
			want = append(want, line)
		}
	}
	if diff := cmp.Diff(want, got[3:]); diff != "" {
		t.Error(diff)
	}
}
