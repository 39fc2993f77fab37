package figures

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/files"
)

// figure6 is sparse products against dense ones, as they were measured.
func (s *studies) figure6() (Figure, error) {
	s.facts.Clock, s.facts.Costs, s.facts.Seeds = "wall on the GPU, virtual on the CPU", "measured", 1
	s.facts.Workloads, s.facts.Mesh, s.facts.Schedule = []string{"products of 4096 x 4096 matrices, float32; 4096 tokens on the GPU, 256 on the CPU"}, "one GPU, one CPU thread", "none"
	s.facts.Command = "bench/gpu.sh (results/gpu-h100.txt), OPENBLAS_CORETYPE=SKYLAKEX dynmo bench spmm --json --clock virtual --rounds 3 (results/spmm-cpu.jsonl)"
	f := Figure{Title: "Figure 6: sparse products against the dense one", Notes: []string{
		fmt.Sprintf("Above 1 the sparse product is faster. The paper's crossing: Sputnik is faster than cuBLAS from %.0f %% of zeros on, on an H100.", 100*s.paper.Spmm.FasterFrom),
	}}
	gpu, err := readGPU(filepath.Join(s.Results, "gpu-h100.txt"))
	if err != nil {
		return f, err
	}
	if gpu == nil {
		f.Notes = append(f.Notes, "GPU: not measured.")
	}
	f.Notes = append(f.Notes, "The ratio depends on the dense product: the CPU's is OpenBLAS's for the core that the results name, the GPU's is cuBLAS without TF32.")
	cpu, err := readCPU(filepath.Join(s.Results, "spmm-cpu.jsonl"))
	if err != nil {
		return f, err
	}
	crossing := Series{Name: "paper's crossing", Role: rolePaper, X: Values{100 * s.paper.Spmm.FasterFrom}, Values: Values{1}}
	f.Panels = []Panel{{Title: "Seconds of the dense product over those of the sparse one", Form: formLines, X: "zeros, per cent", Y: "times as fast as dense", Log: "y", Series: append(append(gpu, cpu...), crossing)}}
	return f, nil
}

// readGPU reads the table of products of float32 in the results of a GPU; nil where there is none.
// Its rows are "50 % zeros", ours, cuSPARSE, the form of that, its preparation and the dense
// product, in milliseconds.
func readGPU(path string) ([]Series, error) {
	text, err := files.Read(path, files.Loads)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	row := regexp.MustCompile(`(?m)^(\d+) % zeros +([\d.]+) +([\d.]+) +\D.*? +[\d.]+ +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$`)
	_, table, found := strings.Cut(string(text), "\nf32, ms")
	if !found {
		return nil, nil
	}
	table, _, _ = strings.Cut(table, "\n\n")
	ours, theirs := Series{Name: "ours, H100"}, Series{Name: "cuSPARSE, H100"}
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		var x [4]float64
		for i := range x {
			if x[i], err = strconv.ParseFloat(m[i+1], 64); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, m[0], err)
			}
		}
		ours.X, ours.Values = append(ours.X, x[0]), append(ours.Values, x[3]/x[1])
		theirs.X, theirs.Values = append(theirs.X, x[0]), append(theirs.Values, x[3]/x[2])
	}
	if len(ours.X) == 0 {
		return nil, fmt.Errorf("%s: the table of f32 products has no rows, want \"50 %% zeros\" and times", path)
	}
	return []Series{ours, theirs}, nil
}

// readCPU reads lines of dynmo bench spmm --json.
func readCPU(path string) ([]Series, error) {
	file, err := files.Open(path, files.Loads)
	if err != nil {
		return nil, fmt.Errorf("%w: dynmo bench spmm --json writes it", err)
	}
	defer file.Close()
	line := regexp.MustCompile(`"name":"spmm/forward_(\d+)","value":([\d.]+)`)
	ours := Series{Name: "ours, one CPU thread"}
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if m := line.FindStringSubmatch(scanner.Text()); m != nil {
			percent, _ := strconv.ParseFloat(m[1], 64) // digits
			ratio, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, m[0], err)
			}
			ours.X, ours.Values = append(ours.X, percent), append(ours.Values, ratio)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(ours.X) == 0 || !slices.IsSorted(ours.X) {
		return nil, fmt.Errorf("%s: no lines of spmm/forward_PERCENT, ascending, want those of dynmo bench spmm --json", path)
	}
	return []Series{ours}, nil
}
