package cuda

import "testing"

func TestLocalRank(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want int
	}{
		"no launcher":                {nil, 0},
		"Open MPI":                   {map[string]string{"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, 3},
		"mpirun in a Slurm step":     {map[string]string{"OMPI_COMM_WORLD_LOCAL_RANK": "2", "SLURM_LOCALID": "0"}, 2},
		"srun":                       {map[string]string{"SLURM_LOCALID": "5"}, 5},
		"Intel MPI":                  {map[string]string{"MPI_LOCALRANKID": "1", "SLURM_LOCALID": "0"}, 1},
		"MPICH":                      {map[string]string{"PMI_LOCAL_RANK": "7"}, 7},
		"a variable that is no rank": {map[string]string{"OMPI_COMM_WORLD_LOCAL_RANK": "x", "SLURM_LOCALID": "4"}, 4},
	} {
		if got := localRank(func(name string) string { return test.env[name] }); got != test.want {
			t.Errorf("%s: local rank %d, want %d", name, got, test.want)
		}
	}
}

func TestPick(t *testing.T) {
	for _, test := range []struct {
		name                     string
		localRank, visible, want int
	}{
		{"a GPU for each rank", 3, 4, 3},
		{"the launcher shows each rank its own", 3, 1, 0},
		{"more ranks than GPUs", 5, 4, 1},
	} {
		if got := Pick(test.localRank, test.visible); got != test.want {
			t.Errorf("%s: GPU %d, want %d", test.name, got, test.want)
		}
	}
}

func TestGPUString(t *testing.T) {
	g := GPU{Name: "NVIDIA H200", Major: 9, Memory: 150_000_000_000, Bus: "00000000:4e:00.0"}
	if got, want := g.String(), "NVIDIA H200 (sm_90, 139.7 GiB, 00000000:4e:00.0)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProbe(t *testing.T) {
	driver, err := Probe()
	if (err == nil) != (len(driver.GPUs) > 0) {
		t.Errorf("%v and %v", driver, err)
	}
	if got, want := (Driver{Version: 12040, GPUs: []string{"a"}}).String(), "CUDA 12.4, 1 GPU"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
