package schedule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

func TestCSVRoundTrip(t *testing.T) {
	for _, k := range kinds {
		for _, stages := range []int{1, 2, 4} {
			for _, microbatches := range []int{stages, 2 * stages, 4*stages + 1} {
				s, err := New(k.kind, stages, k.chunks, microbatches)
				expect.OK(t, err)
				var text strings.Builder
				expect.OK(t, WriteCSV(&text, s))
				got, err := ParseCSV("s.csv", strings.NewReader(text.String()))
				expect.OK(t, err)
				s.Kind = KindFile
				s.Map.Vee = s.Map.Vee && stages > 1 // on one stage a V is a loop
				if diff := cmp.Diff(s, got); diff != "" {
					t.Errorf("%s, %d stages, %d microbatches: %s", k.kind, stages, microbatches, diff)
				}
			}
		}
	}
}

func TestWriteCSV(t *testing.T) {
	s, err := New(KindZBV, 2, 2, 3)
	expect.OK(t, err)
	var text strings.Builder
	expect.OK(t, WriteCSV(&text, s))
	expect.Golden(t, "testdata/zb-v_p2_m3.csv", text.String())
}

// TestParseCSV reads idle cells in PyTorch's form, and rows of different lengths.
func TestParseCSV(t *testing.T) {
	got, err := ParseCSV("s.csv", strings.NewReader("0F0,0F1,,,0B0,0B1\r\n,1F0, 1I0,1W0,1F1,1I1,1W1\n"))
	expect.OK(t, err)
	if want := "F0 F1 B0 B1\nF0 I0 W0 F1 I1 W1\n"; Format(got.Lists) != want || got.Map != partition.Line(2) || got.Microbatches != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestParseCSVSums: REDUCE_GRAD behind the last backward of its virtual stage, where PyTorch puts
// it, changes nothing.
func TestParseCSVSums(t *testing.T) {
	got, err := ParseCSV("s.csv", strings.NewReader("0F0,2F0,2B0,2REDUCE_GRAD,0I0,0W0,0REDUCE_GRAD\n1F0,3F0,3B0,3REDUCE_GRAD,1B0,1REDUCE_GRAD\n"))
	expect.OK(t, err)
	if want := "F0 F0.1 B0.1 I0 W0\nF0 F0.1 B0.1 B0\n"; Format(got.Lists) != want {
		t.Errorf("got %s, want %s", Format(got.Lists), want)
	}
}

func TestParseCSVRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no rows"},
		{"no instruction", ",,\n", "no instructions"},
		{"word", "0F0,hello\n", `row 1, column 2: "hello", want a virtual stage, one of F, I, W and B, and a microbatch`},
		{"no microbatch", "0F\n", `row 1, column 1: "0F": microbatch`},
		{"huge", "0F99999999999999999999\n", `row 1, column 1: "0F99999999999999999999": microbatch`},
		{"message", "0F0,0B0\n1RECV_F0,1F0,1B0\n", `row 2, column 1: "1RECV_F0": RECV_F is derived or unknown`},
		{"unshard", "0UNSHARD,0F0,0B0\n", `column 1: "0UNSHARD": UNSHARD is derived`},
		{"quote", "0F0,\"0B0\n", "parse error on line 1"},
		{"other map", "0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", "stage 0: instruction F0 of virtual stage 1: neither a loop nor a V of 2 stages"},
		{"mixed map", "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n0F0\n", "neither a loop nor a V"},
		{"microbatch forgotten", "0F0,0F1,0B0,0B1\n1F0,1B0\n", "stage 1: virtual stage 1: F1 is missing"},
		{"backward forgotten", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n", "stage 1: microbatch 1 is not finished"},
		{"chunk forgotten", "0F0,0B0\n1F0,3F0,3B0,1B0\n", "stage 0: virtual stage 2: F0 is missing"},
		{"beyond integers", "0F0,0B0\n9223372036854775807F0\n", "row 2, column 1: \"9223372036854775807F0\": virtual stage"},
		{"one far off", "0F0,0B0,0F1000000000\n", "virtual stage 0: F1 is missing"},
		{"far virtual stage", "0F0,0B0,1000000000F0\n", "virtual stage 1: F0 is missing"},
		{"deadlock", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "stage 0: instruction 1, B0: deadlock"},
		{"backward whole and in half", "0F0,0F1,0B0,0W0,0I1,0W1\n", "stage 0: instruction 3, W0: out of order, or twice"},
		{"B is I", "0F0,0B0,0W0\n", `row 1, column 3: "0W0": there is a B of the same microbatch, and B is both halves of the backward; want I for the half for inputs, which older PyTorch calls B`},
		{"BW is B", "0F0,0BW0\n", `row 1, column 2: "0BW0": BW is older PyTorch's name of B, whose B is I; want I and B`},
		{"overlapped", "0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n",
			`row 2, column 2: "(1F1;1B0)OVERLAP_F_B": OVERLAP_F_B is two instructions at a time, a stage carries out one after the other; want 1F1 and 1B0 in cells of their own`},
		{"sum too early", "0F0,0F1,0B0,0REDUCE_GRAD,0B1\n", `row 1, column 5: "0B1": behind 0REDUCE_GRAD, want that behind the last backward`},
		{"sum of nothing", "0F0,0B0\n1F0,1B0,0REDUCE_GRAD\n", `row 2, column 3: "0REDUCE_GRAD": nothing of virtual stage 0 before it`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCSV("s.csv", strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "s.csv: ") {
				t.Errorf("got %v, want s.csv: …%s…", err, c.want)
			}
		})
	}
}

// FuzzParseCSV: every accepted schedule is legal, and can be written and read again.
func FuzzParseCSV(f *testing.F) {
	f.Add("0F0,0F1,,,0B0,0B1\n,1F0,1I0,1W0,1F1,1I1,1W1\n")
	f.Add("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
	f.Add("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n")
	f.Add("0F0,0B0,0REDUCE_GRAD\n1F0,(1F0;1B0)OVERLAP_F_B,1B0\n")
	f.Add("0F99999,\"\n1000000F0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseCSV("s.csv", strings.NewReader(text))
		if err != nil {
			return
		}
		expect.OK(t, s.Check(s.Cap))
		var out strings.Builder
		expect.OK(t, WriteCSV(&out, s))
		again, err := ParseCSV("s.csv", strings.NewReader(out.String()))
		expect.OK(t, err)
		if diff := cmp.Diff(s, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
