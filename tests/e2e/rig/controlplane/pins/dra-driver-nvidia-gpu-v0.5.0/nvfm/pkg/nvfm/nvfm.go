// Package nvfm has what NVIDIA's DRA driver names of go-nvfm, and finds no fabric manager.
//
// The driver opens it only on a machine with an NVSwitch, of which there is none in the tests.
package nvfm

// A Return is 0, or why a call failed.
type Return int

const (
	SUCCESS   Return = 0
	NOT_FOUND Return = 1
)

func (r Return) String() string { return "there is no fabric manager on this machine" }

type (
	LibraryOption     func()
	ConnectOption     func()
	FabricPartitionId uint32
)

type FabricPartitionGpuInfo struct {
	PhysicalId          uint32
	Uuid                [80]int8
	PciBusId            [32]int8
	NumNvLinksAvailable uint32
	MaxNumNvLinks       uint32
	NvlinkLineRateMBps  uint32
}

type FabricPartitionInfo struct {
	PartitionId uint32
	IsActive    uint32
	NumGpus     uint32
	GpuInfo     [16]FabricPartitionGpuInfo
}

type FabricPartitionList struct {
	NumPartitions uint32
	PartitionInfo [64]FabricPartitionInfo
}

// A Handle is a connection.
type Handle interface {
	GetSupportedFabricPartitions() (FabricPartitionList, Return)
	ActivateFabricPartition(FabricPartitionId) Return
	DeactivateFabricPartition(FabricPartitionId) Return
	Disconnect() Return
}

// An Interface is the library.
type Interface interface {
	Init() Return
	Shutdown() Return
	Connect(...ConnectOption) (Handle, Return)
}

type absent struct{}

func (absent) Init() Return                              { return NOT_FOUND }
func (absent) Shutdown() Return                          { return SUCCESS }
func (absent) Connect(...ConnectOption) (Handle, Return) { return nil, NOT_FOUND }

func New(...LibraryOption) Interface       { return absent{} }
func WithLibraryPath(string) LibraryOption { return func() {} }
func WithUnixSocket(string) ConnectOption  { return func() {} }
func WithAddress(string) ConnectOption     { return func() {} }
func WithTimeoutMs(uint32) ConnectOption   { return func() {} }
