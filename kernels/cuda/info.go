//go:build cuda

package cuda

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// Info describes a device.
type Info struct {
	Index           int
	Name            string
	UUID            string // GPU-… or, of a MIG slice, MIG-…, as nvidia-smi -L has it
	Bus             string // its PCI address, as 0000:1B:00.0
	Memory          int64  // bytes
	Major, Minor    int    // of its compute capability
	Multiprocessors int
	SharedMemory    int // bytes, the most a block may have
}

// MIG reports whether the device is a slice of a GPU.
func (i Info) MIG() bool { return strings.HasPrefix(i.UUID, migPrefix) }

// What the names of devices begin with.
const gpuPrefix, migPrefix = "GPU-", "MIG-"

// Attributes of a device, as the driver numbers them.
const (
	attributeMultiprocessors = 16
	attributeMajor           = 75
	attributeMinor           = 76
	attributeShared          = 97
)

// Describe asks for a device's description.
func (l *Library) Describe(index int) (Info, error) {
	i := Info{Index: index}
	var dev int32
	if err := l.call("cuDeviceGet", l.deviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(index)); err != nil {
		return i, err
	}
	if err := l.identify(dev, &i); err != nil {
		return i, err
	}
	var total uint64
	if err := l.call("cuDeviceTotalMem", l.deviceTotal, uintptr(unsafe.Pointer(&total)), uintptr(dev)); err != nil {
		return i, err
	}
	i.Memory = int64(total)
	for what, to := range map[int]*int{attributeMultiprocessors: &i.Multiprocessors,
		attributeMajor: &i.Major, attributeMinor: &i.Minor, attributeShared: &i.SharedMemory} {
		var v int32
		if err := l.call("cuDeviceGetAttribute", l.deviceAttribute, uintptr(unsafe.Pointer(&v)),
			uintptr(what), uintptr(dev)); err != nil {
			return i, err
		}
		*to = int(v)
	}
	return i, nil
}

// identify asks which device it is. The driver's names of MIG slices have the word in them.
func (l *Library) identify(dev int32, i *Info) error {
	text := make([]byte, 256)
	if err := l.call("cuDeviceGetName", l.deviceName, uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(text)), uintptr(dev)); err != nil {
		return err
	}
	i.Name = cString(&text[0])
	var id [16]byte
	if err := l.call("cuDeviceGetUuid", l.deviceUUID, uintptr(unsafe.Pointer(&id[0])), uintptr(dev)); err != nil {
		return err
	}
	x := hex.EncodeToString(id[:])
	i.UUID = gpuPrefix
	if strings.Contains(i.Name, " MIG ") {
		i.UUID = migPrefix
	}
	i.UUID += x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
	if err := l.call("cuDeviceGetPCIBusId", l.deviceBus, uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(text)), uintptr(dev)); err != nil {
		return err
	}
	i.Bus = cString(&text[0])
	return nil
}

// find is the number of the device that a user names by its number or by its UUID.
func (l *Library) find(which string, devices int) (int, error) {
	named := strings.HasPrefix(which, gpuPrefix) || strings.HasPrefix(which, migPrefix)
	if n, err := strconv.Atoi(which); err == nil {
		return n, nil
	} else if !named {
		return 0, fmt.Errorf("device cuda:%s: want a number or a UUID, as in cuda:1 and cuda:GPU-…", which)
	}
	var all []string
	for n := range devices {
		i, err := l.Describe(n)
		if err != nil {
			return 0, err
		}
		if strings.EqualFold(i.UUID, which) {
			return n, nil
		}
		all = append(all, fmt.Sprintf("%s (cuda:%d)", i.UUID, n))
	}
	why := "CUDA_VISIBLE_DEVICES hides others"
	if strings.HasPrefix(which, migPrefix) {
		why += "; a MIG slice is seen where it is named there"
	}
	return 0, fmt.Errorf("there is no device cuda:%s; the driver has %s (%s)", which, strings.Join(all, ", "), why)
}
