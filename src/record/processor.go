package record

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// processor returns the CPU's model name and its microarchitecture. It returns "unknown" if there
// is no /proc/cpuinfo.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	return processorName(f)
}

// processorName reads the first processor of a /proc/cpuinfo: "AMD EPYC (Zen 4)". Clouds shorten
// the model name until many generations share it. So the microarchitecture follows, or family,
// model and stepping if it is not known.
func processorName(cpuinfo io.Reader) string {
	facts := map[string]string{}
	for lines := bufio.NewScanner(cpuinfo); lines.Scan() && lines.Text() != ""; {
		key, value, _ := strings.Cut(lines.Text(), ":")
		facts[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	name := facts["model name"]
	if name == "" {
		return "unknown"
	}
	family, err := strconv.Atoi(facts["cpu family"])
	if err != nil {
		return name // a processor of another maker
	}
	model, _ := strconv.Atoi(facts["model"])
	stepping, _ := strconv.Atoi(facts["stepping"])
	for _, m := range microarchitectures {
		if m.vendor == facts["vendor_id"] && m.family == family &&
			m.first <= model && model <= m.last && m.steppings[0] <= stepping && stepping <= m.steppings[1] {
			return fmt.Sprintf("%s (%s)", name, m.name)
		}
	}
	return fmt.Sprintf("%s (family %d, model %d)", name, family, model)
}

// anyStepping is the range of all four-bit steppings.
var anyStepping = [2]int{0, 15}

// microarchitectures are the ones with AVX2 of servers and of most other computers. Sources: Linux,
// arch/x86/kernel/cpu/amd.c (bsp_init_amd) and arch/x86/include/asm/intel-family.h; Skylake's
// steppings: Intel, Xeon Scalable specification updates.
var microarchitectures = []struct {
	vendor      string
	family      int
	first, last int // models
	steppings   [2]int
	name        string
}{
	{"AuthenticAMD", 0x17, 0x00, 0x2f, anyStepping, "Zen"},
	{"AuthenticAMD", 0x17, 0x30, 0xaf, anyStepping, "Zen 2"},
	{"AuthenticAMD", 0x19, 0x00, 0x0f, anyStepping, "Zen 3"},
	{"AuthenticAMD", 0x19, 0x10, 0x1f, anyStepping, "Zen 4"},
	{"AuthenticAMD", 0x19, 0x20, 0x5f, anyStepping, "Zen 3"},
	{"AuthenticAMD", 0x19, 0x60, 0xaf, anyStepping, "Zen 4"},
	{"AuthenticAMD", 0x1a, 0x00, 0x4f, anyStepping, "Zen 5"},
	{"AuthenticAMD", 0x1a, 0x60, 0x7f, anyStepping, "Zen 5"},
	{"GenuineIntel", 6, 0x3f, 0x3f, anyStepping, "Haswell"},
	{"GenuineIntel", 6, 0x4f, 0x4f, anyStepping, "Broadwell"},
	{"GenuineIntel", 6, 0x56, 0x56, anyStepping, "Broadwell"},
	{"GenuineIntel", 6, 0x4e, 0x4e, anyStepping, "Skylake"},
	{"GenuineIntel", 6, 0x5e, 0x5e, anyStepping, "Skylake"},
	{"GenuineIntel", 6, 0x55, 0x55, [2]int{0, 4}, "Skylake-X"},
	{"GenuineIntel", 6, 0x55, 0x55, [2]int{5, 7}, "Cascade Lake"},
	{"GenuineIntel", 6, 0x55, 0x55, [2]int{10, 11}, "Cooper Lake"},
	{"GenuineIntel", 6, 0x6a, 0x6a, anyStepping, "Ice Lake"},
	{"GenuineIntel", 6, 0x6c, 0x6c, anyStepping, "Ice Lake"},
	{"GenuineIntel", 6, 0x8f, 0x8f, anyStepping, "Sapphire Rapids"},
	{"GenuineIntel", 6, 0xcf, 0xcf, anyStepping, "Emerald Rapids"},
	{"GenuineIntel", 6, 0xad, 0xae, anyStepping, "Granite Rapids"},
	{"GenuineIntel", 6, 0xaf, 0xaf, anyStepping, "Sierra Forest"},
}
