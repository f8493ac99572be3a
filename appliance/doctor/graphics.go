package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"onebit/engine"
	"onebit/engine/plan"
)

// Card is a graphics card, or the graphics part of a processor. Sizes are in bytes.
type Card struct {
	Name       string `json:"name"` // such as card0
	Driver     string `json:"driver"`
	ID         string `json:"id"` // PCI vendor and device, such as 1002:1586
	Target     string `json:"target,omitempty"`
	Integrated bool   `json:"integrated"` // it shares the machine's memory

	VRAM     uint64 `json:"vram_bytes"` // its own memory; of an integrated one, what the firmware carved out
	VRAMUsed uint64 `json:"vram_used_bytes"`
	GTT      uint64 `json:"gtt_bytes"` // the machine's memory that the driver lets it use
	GTTUsed  uint64 `json:"gtt_used_bytes"`

	Vulkan uint64 `json:"usable_vulkan_bytes"` // what a program on Vulkan can have now
	ROCm   uint64 `json:"usable_rocm_bytes"`   // what a program on ROCm can have now
}

// Memory sizes that are facts about drivers.
const (
	oldROCm   = 15_500_000_000 // what ROCm sees of the memory with an old kernel
	keepFree  = 16 * plan.GiB  // what the machine keeps beside the memory of an integrated card
	pageGiB   = plan.GiB / 4096
	smallVRAM = plan.GiB / 2 // the smallest carve-out that firmware offers
)

// integrated lists AMD's processors with graphics by PCI device.
var integrated = map[string]string{
	"1002:1586": "Strix Halo", "1002:150e": "Strix Point", "1002:1114": "Krackan Point", "1002:15bf": "Phoenix",
	"1002:15c8": "Phoenix", "1002:1900": "Hawk Point", "1002:1901": "Hawk Point", "1002:1681": "Rembrandt",
	"1002:1638": "Cezanne", "1002:1636": "Renoir", "1002:164c": "Lucienne", "1002:164e": "Raphael",
	"1002:13c0": "Granite Ridge", "1002:1506": "Mendocino", "1002:15dd": "Raven Ridge", "1002:15d8": "Picasso",
	"1002:163f": "Van Gogh",
}

// usable fills in what programs can have. Of an integrated card both kinds of memory are used: Vulkan draws on the
// carve-out and on the driver's share of the machine's memory (GTT), ROCm on the larger of the two. GTT is a permission,
// not memory: no more can be had than is free.
func (c *Card) usable(available uint64, k kernel) {
	vram, gtt := c.VRAM-min(c.VRAM, c.VRAMUsed), min(c.GTT-min(c.GTT, c.GTTUsed), available)
	c.Vulkan, c.ROCm = vram, vram
	if c.Integrated {
		c.Vulkan = vram + gtt
		if c.GTT > c.VRAM {
			c.ROCm = gtt
		}
		if k.before(first) {
			c.ROCm = min(c.ROCm, oldROCm)
		}
	}
}

// discover lists the cards and their memory.
func (e *exam) discover() {
	targets := e.targets()
	for _, dir := range e.glob("sys/class/drm/card[0-9]*") {
		if strings.Contains(path.Base(dir), "-") { // a connector
			continue
		}
		c := Card{Name: path.Base(dir), ID: e.pci(dir)}
		for line := range strings.Lines(e.read(dir + "/device/uevent")) {
			if d, ok := strings.CutPrefix(strings.TrimSpace(line), "DRIVER="); ok {
				c.Driver = d
			}
		}
		_, c.Integrated = integrated[c.ID]
		c.Target = targets[c.ID]
		c.VRAM, c.VRAMUsed = e.number(dir+"/device/mem_info_vram_total"), e.number(dir+"/device/mem_info_vram_used")
		c.GTT, c.GTTUsed = e.number(dir+"/device/mem_info_gtt_total"), e.number(dir+"/device/mem_info_gtt_used")
		c.usable(e.report.Available, e.kernel)
		e.report.Cards = append(e.report.Cards, c)
	}
}

// nodes looks at the devices through which programs reach the cards.
func (e *exam) nodes() {
	e.render = e.node("render", "dev/dri/renderD*", "no GPU driver offers one", "see the remedy for the gpu")
	if e.amd() {
		e.kfd = e.node("compute", "dev/kfd", "the amdgpu driver does not offer it", "load the amdgpu driver of a kernel that was built with HSA_AMD")
	} else {
		e.kfd = errors.New("there is no AMD GPU")
	}
}

// amd reports whether one of the cards is run by AMD's driver.
func (e *exam) amd() bool {
	for _, c := range e.report.Cards {
		if c.Driver == "amdgpu" {
			return true
		}
	}
	return false
}

// cards gives the verdicts on the cards and their memory.
func (e *exam) cards() {
	if len(e.report.Cards) == 0 {
		remedy := "models run on the CPU; for a GPU load its kernel driver (amdgpu)"
		if _, ok := e.cmdline["nomodeset"]; ok {
			remedy = "remove nomodeset from the kernel's command line: it keeps GPU drivers from loading"
		}
		e.add("gpu", Miss, "no card with a driver", remedy)
		return
	}
	for _, c := range e.report.Cards {
		text := fmt.Sprintf("%s: %s", c.Name, c.ID)
		if name := integrated[c.ID]; name != "" {
			text = fmt.Sprintf("%s: %s", c.Name, name)
		}
		if c.Target != "" {
			text += " (" + c.Target + ")"
		}
		if c.Driver == "" {
			e.add("gpu", Miss, text+", no driver", "load the card's kernel driver (amdgpu for AMD)")
			continue
		}
		e.add("gpu", OK, text+", driver "+c.Driver, "")
		if c.VRAM+c.GTT > 0 {
			e.pool(c)
		}
	}
	if v, ok := e.cmdline["amdgpu.gttsize"]; ok {
		e.add("gpu memory", Warn, "amdgpu.gttsize="+v+" is on the kernel's command line", "remove amdgpu.gttsize, which is deprecated and clashes with ttm.pages_limit; use that alone")
	}
}

// pool gives the verdict on one card's memory.
func (e *exam) pool(c Card) {
	text := fmt.Sprintf("%s: vulkan can have %s, rocm %s (VRAM %s, %s used; GTT %s, %s used)", c.Name,
		gib(c.Vulkan), gib(c.ROCm), gib(c.VRAM), gib(c.VRAMUsed), gib(c.GTT), gib(c.GTTUsed))
	if c.GTT-min(c.GTT, c.GTTUsed) > e.report.Available && e.report.Available > 0 {
		text += fmt.Sprintf("; only %s of memory are free", gib(e.report.Available))
	}
	if want := share(e.report.Memory, c.VRAM); c.Integrated && want > 0 && c.VRAM+c.GTT < want*plan.GiB/4*3 {
		pages := want * pageGiB
		e.add("gpu memory", Warn, text, fmt.Sprintf("set the firmware's carve-out to its minimum (512 MB), and on the kernel's command line ttm.pages_limit=%d ttm.page_pool_size=%d (%d GiB)", pages, pages, want))
		return
	}
	e.add("gpu memory", OK, text, "")
}

// share is how much of a machine's memory an integrated card should be allowed, in GiB: all but 16, when the firmware
// carves out no more than it must.
func share(memory, vram uint64) uint64 {
	all := memory + vram - min(vram, smallVRAM)
	return (all - min(all, keepFree)) / plan.GiB
}

// node looks at a device node, or the nodes that a pattern names; one that can be used is enough.
func (e *exam) node(name, pattern, absent, remedy string) error {
	found := e.glob(pattern)
	if len(found) == 0 {
		e.add(name, Miss, "no /"+pattern+": "+absent, remedy)
		return fmt.Errorf("there is no /%s", pattern)
	}
	var denied error
	for _, f := range found {
		err := e.Access(e.path(f))
		if err == nil {
			e.add(name, OK, f, "")
			return nil
		}
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		denied = fmt.Errorf("%s: %w", f, err)
	}
	e.add(name, Miss, denied.Error(), "sudo usermod -aG render $USER, then log in again (a container needs the device and the group too)")
	return denied
}

// targets returns the compiler's names of the GPUs that the compute interface knows, by PCI vendor and device.
func (e *exam) targets() map[string]string {
	out := map[string]string{}
	for _, file := range e.glob("sys/class/kfd/kfd/topology/nodes/*/properties") {
		values := map[string]uint64{}
		for line := range strings.Lines(e.read(file)) {
			if words := strings.Fields(line); len(words) == 2 {
				values[words[0]], _ = strconv.ParseUint(words[1], 10, 64)
			}
		}
		if v := values["gfx_target_version"]; v > 0 {
			id := fmt.Sprintf("%04x:%04x", values["vendor_id"], values["device_id"])
			out[id] = fmt.Sprintf("gfx%d%x%x", v/10000, v/100%100, v%100)
		}
	}
	return out
}

// pci returns the vendor and the device of a PCI device.
func (e *exam) pci(dir string) string {
	vendor, device := e.read(dir+"/device/vendor"), e.read(dir+"/device/device")
	return strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(device, "0x")
}

// number reads a number, 0 when there is none.
func (e *exam) number(name string) uint64 {
	n, err := strconv.ParseUint(e.read(name), 10, 62) // two of them add up within 64 bits
	if err != nil {
		return 0
	}
	return n
}

// neural looks at the NPU.
func (e *exam) neural() {
	for _, key := range []string{"amd_iommu", "iommu"} {
		if e.cmdline[key] == "off" {
			e.npu = fmt.Errorf("%s=off disables it", key)
			e.add("npu", Miss, e.npu.Error(), "remove "+key+"=off from the kernel's command line: it gains a few percent at most")
			return
		}
	}
	e.npu = e.node("npu", "dev/accel/accel*", "the amdxdna driver offers none", "use a kernel with the amdxdna driver and its firmware, and see dmesg for \"firmware protocol\"")
	last := len(e.report.Checks) - 1
	if version := e.read("sys/class/accel/accel0/device/fw_version"); version != "" && e.npu == nil {
		e.report.Checks[last].Text += ", firmware " + version
	}
}

// usableMemory returns the most that a program on a device can have of a card's memory.
func (e *exam) usableMemory(d engine.Device) uint64 {
	var most uint64
	for _, c := range e.report.Cards {
		n := c.ROCm
		if d == engine.Vulkan || d == engine.Zinc {
			n = c.Vulkan
		}
		most = max(most, n)
	}
	return most
}
