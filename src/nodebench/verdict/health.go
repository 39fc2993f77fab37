package verdict

import (
	"bufio"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/device/nvml"
)

// HealthRows returns a GPU's report about itself as rows. A GPU that did not answer a query is faulty.
func HealthRows(node string, g nvml.GPU, h nvml.Health) []Row {
	if fault := cmp.Or(g.Fault, h.Fault); fault != "" {
		name := strings.TrimPrefix(fmt.Sprintf("%s GPU %d", g.Name, g.Index), " ")
		return []Row{{Node: node, Device: fmt.Sprintf("gpu%d", g.Index), Model: g.Name, Check: "nvml", Status: Faulty,
			Note: fmt.Sprintf("%s (%s) does not answer NVML: %s", name, cmp.Or(g.Bus, "its place is unknown"), fault)}}
	}
	row := func(check string, value int, unit string) Row {
		r := Row{Node: node, Device: fmt.Sprintf("gpu%d", g.Index), Model: g.Name, Check: check, Value: float64(value), Unit: unit, Status: Measured}
		if value == nvml.Unknown {
			r.Value, r.Status, r.Note = 0, NotAvailable, "the GPU does not tell"
		}
		return r
	}
	ecc, remapped := row("ecc_uncorrected", h.Uncorrected, "errors"), row("remapped_rows", h.Remapped, "rows")
	if h.Uncorrected > 0 {
		ecc.Status, ecc.Note = Faulty, fmt.Sprintf("%d ECC errors that could not be corrected since the driver was loaded", h.Uncorrected)
	}
	switch {
	case h.RemapFailed:
		remapped.Status, remapped.Note = Faulty, "a row of the memory could not be replaced"
	case h.RemapPending:
		remapped.Status, remapped.Note = Faulty, "a row of the memory waits to be replaced: reset the GPU"
	}
	width := row("pcie_width", h.PCIeWidth, "lanes")
	if h.PCIeWidth != nvml.Unknown && h.PCIeWidth < h.PCIeMost {
		width.Status, width.Note = Faulty, fmt.Sprintf("the PCIe link has %d of %d lanes", h.PCIeWidth, h.PCIeMost)
	}
	throttle := Row{Node: node, Device: ecc.Device, Model: g.Name, Check: "throttle", Status: Measured, Note: strings.Join(g.Throttle, ", ")}
	for _, reason := range g.Throttle {
		if slices.Contains([]string{"hardware slowdown", "hardware thermal slowdown", "power brake"}, reason) {
			throttle.Status, throttle.Note = Faulty, "the clock is held back: "+reason
		}
	}
	return []Row{ecc, remapped, width, row("nvlinks", h.Links, "links"), throttle}
}

// fatal are the numbers of NVIDIA's Xid messages that mean broken hardware, or a GPU that must be reset. The
// list is that of Azure's node health checks (Azure/azurehpc-health-checks, azure_gpu_xid.nhc), with 95
// (an error that was not contained) and 140 (an unrecovered ECC error) of NVIDIA's Xid catalog. Other
// numbers mean faults of programs.
var fatal = []int{48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 95, 119, 120, 140}

// recovery is the number of the message that names what a GPU needs: none, a reset, or a reboot.
const recovery = 154

var recovered = regexp.MustCompile(`to 0x0\b`)

// xidSince is how many seconds old a counted Xid message may be.
const xidSince = 2 * 3600

var xidLine = regexp.MustCompile(`^\d+,\d+,(\d+),[^;]*;NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)[^)]*\): (\d+)(.*)`)

// XIDRows returns a faulty row for each fatal Xid message of the last two hours in a kernel's log.
// The log is in the form of /dev/kmsg. Without such messages XIDRows returns one measured row.
// uptime is the seconds since the system started.
func XIDRows(node, log string, uptime float64) []Row {
	var rows []Row
	for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
		m := xidLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, _ := strconv.ParseFloat(m[1], 64) // in microseconds; m[1] has only digits
		xid, _ := strconv.Atoi(m[3])
		bad := slices.Contains(fatal, xid) || xid == recovery && !recovered.MatchString(m[4])
		if bad && uptime-at*1e-6 <= xidSince {
			rows = append(rows, Row{Node: node, Device: "gpu " + m[2], Check: "xid", Status: Faulty,
				Note: fmt.Sprintf("Xid %d on PCI %s%s", xid, m[2], m[4])})
		}
	}
	if rows == nil {
		rows = []Row{{Node: node, Device: "gpus", Check: "xid", Status: Measured, Note: "no fatal Xid message in two hours"}}
	}
	return rows
}

// PCIRows returns a faulty row for each of NVIDIA's GPUs on the PCI bus that the driver does not list. pci
// has their addresses, such as 0000:4e:00.0.
func PCIRows(node string, pci []string, listed []nvml.GPU) []Row {
	var rows []Row
	for _, address := range pci {
		if !slices.ContainsFunc(listed, func(g nvml.GPU) bool {
			return g.Bus == "" || strings.HasSuffix(strings.ToLower(g.Bus), strings.ToLower(address))
		}) {
			rows = append(rows, Row{Node: node, Device: "gpu " + address, Check: "pci", Status: Faulty,
				Note: fmt.Sprintf("the GPU at PCI %s is on the bus, and the driver does not list it", address)})
		}
	}
	return rows
}
