package schedule

import "testing"

// TestSkipFrozen: virtual stages that do not train do forwards alone, and get and send no
// gradients; nor does the first that trains send any.
func TestSkipFrozen(t *testing.T) {
	for _, c := range []struct {
		name           string
		kind           Kind
		stages, chunks int
		first          int
		text, messages string // the latter of stage 1
	}{
		{"all train", Kind1F1B, 2, 1, 0, "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n", "RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 B2 SB2\n"},
		{"first stage is frozen", Kind1F1B, 2, 1, 1, "F0 F1 F2\nF0 B0 F1 B1 F2 B2\n", "RF0 F0 B0 RF1 F1 B1 RF2 F2 B2\n"},
		{"nothing trains", Kind1F1B, 2, 1, 2, "F0 F1 F2\nF0 F1 F2\n", "RF0 F0 RF1 F1 RF2 F2\n"},
		{"apart", KindZBH1, 2, 1, 1, "F0 F1 F2\nF0 I0 F1 I1 W0 F2 I2 W1 W2\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(c.kind, c.stages, c.chunks, 3)
			if err != nil {
				t.Fatal(err)
			}
			whole := Format(s.Lists)
			got := s.SkipFrozen(c.first)
			if text := Format(got.Lists); text != c.text && c.kind == Kind1F1B {
				t.Errorf("lists\n%swant\n%s", text, c.text)
			}
			for stage, list := range got.Lists {
				for _, in := range got.WithMessages(stage) {
					if v := s.Map.Place(stage, in.Chunk); in.Op != F && in.Op != RecvForward && in.Op != SendForward && (v < c.first || v == c.first && in.Op == SendBackward) && c.first > 0 {
						t.Errorf("virtual stage %d does %v of %v", v, in, list)
					}
				}
			}
			if c.messages != "" {
				if text := Format([][]Instr{got.WithMessages(1)}); text != c.messages {
					t.Errorf("with messages %swant %s", text, c.messages)
				}
			}
			if Format(s.Lists) != whole {
				t.Error("the schedule itself has changed")
			}
		})
	}
}
