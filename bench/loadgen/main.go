// Command loadgen commits offsets (or does what -operation names) as fast as the answers come, or at a fixed rate: a closed
// loop over N connections, each with a group of its own, or over N groups with several members. It speaks Kafka's raw protocol, so that what it measures is
// the server, and prints one line of JSON.
//
// It says "measuring" on standard error when the warm-up is over and "measured" when the measured window ends, so that a
// caller can take the server's CPU time over the same window; for each sample where there are several.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	bootstrap           string
	connections         int
	partitions          int
	operation           string
	members             int
	samples             int
	rate                float64
	topic, groupPrefix  string
	login               string
	warmUp, duration    time.Duration
	setUpTime, deadline time.Duration
}

// result is what is printed. Times are milliseconds.
type result struct {
	Connections      int            `json:"connections"`
	Partitions       int            `json:"partitions"`
	Operation        string         `json:"operation"`
	Seconds          float64        `json:"seconds"`
	CPUSeconds       float64        `json:"generator_cpu_seconds"`
	Commits          int            `json:"commits"`
	CommitsPerSecond float64        `json:"commits_per_second"`
	P50              float64        `json:"p50_ms"`
	P99              float64        `json:"p99_ms"`
	P999             float64        `json:"p99_9_ms"`
	Max              float64        `json:"max_ms"`
	RequestsEach     float64        `json:"requests_each,omitempty"` // of an assembly
	Errors           int            `json:"errors"`
	ErrorKinds       map[string]int `json:"error_kinds,omitempty"`
}

// phases of a run, shared by all workers.
const (
	warming int32 = iota
	measuring
	done
)

// worker is one connection.
type worker struct {
	options   *options
	operation operation
	phase     *atomic.Int32
	latencies []time.Duration
	errors    map[string]int
}

func main() {
	o := options{}
	flag.StringVar(&o.bootstrap, "bootstrap", "127.0.0.1:9092", "address of any broker")
	flag.IntVar(&o.connections, "connections", 1, "connections; each has a group of its own")
	flag.IntVar(&o.partitions, "partitions", 1, "partitions in each commit")
	flag.StringVar(&o.operation, "operation", "commit", "commit, fetch (the offsets of a commit), fetch-all, heartbeat; store (commits in one of many groups after the other); rebalance (of a group with several members); consumer-heartbeat and consumer-rebalance, likewise in groups of the consumer protocol, which own all -partitions of the topic; consumer-assembly (-samples times, of such groups that nobody is in); handshake or login (by TLS, a new connection each)")
	flag.IntVar(&o.members, "members", 1, "of all connections together: for heartbeat and store each in a group of its own, for rebalance with a connection of its own, and as many groups as connections, as for operations of the consumer protocol")
	flag.IntVar(&o.samples, "samples", 3, "times that consumer-assembly is measured, in place of -duration")
	flag.Float64Var(&o.rate, "rate", 0, "requests/s of all connections together; 0: as many as are answered")
	flag.StringVar(&o.topic, "topic", "bench", "topic of the committed offsets")
	flag.StringVar(&o.groupPrefix, "group-prefix", "bench", "first part of the groups' names")
	flag.StringVar(&o.login, "login", "", "USER:PASSWORD: speak TLS, whatever certificate the server has, and log in by PLAIN")
	flag.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "time before measuring")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "time to measure")
	flag.DurationVar(&o.setUpTime, "set-up-time", 120*time.Second, "time for all connections to get their first commit through")
	flag.DurationVar(&o.deadline, "request-timeout", 30*time.Second, "time after which a request counts as failed")
	flag.Parse()
	outcome, err := run(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(outcome); err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
	if outcome.Errors > 0 {
		os.Exit(3)
	}
}

func run(o *options) (*result, error) {
	if o.connections < 1 || o.partitions < 1 || o.samples < 1 {
		return nil, errors.New("connections, partitions and samples are 1 or more")
	}
	switch o.operation {
	case operationHeartbeat, operationRebalance, operationStore, operationConsumerHeartbeat, operationConsumerRebalance,
		operationConsumerAssembly:
		if o.members < o.connections {
			return nil, fmt.Errorf("%s needs at least one member for each connection", o.operation)
		}
	}
	if err := allowFiles(uint64(o.sockets()) + 64); err != nil {
		return nil, err
	}
	if o.operation == operationConsumerAssembly {
		return assemblies(o)
	}
	var phase atomic.Int32
	workers := make([]*worker, o.connections)
	ready := make(chan error, o.connections)
	var running sync.WaitGroup
	enter := entry(o)
	for i := range workers {
		w := &worker{options: o, phase: &phase, errors: map[string]int{}}
		workers[i] = w
		if enter == nil && !o.rebalances() {
			operation, err := newOperation(o, i)
			if err != nil {
				return nil, err
			}
			w.operation = operation
		}
		running.Add(1)
		go func() {
			defer running.Done()
			switch {
			case enter != nil:
				ready <- nil
				w.repeat(func() (bool, error) { return false, enter() })
			case o.operation == operationRebalance:
				w.rebalance(ready, newRebalances(o, i))
			case o.operation == operationConsumerRebalance:
				w.rebalance(ready, newConsumers(o, i))
			default:
				w.run(ready)
			}
		}()
	}
	for range workers {
		if err := <-ready; err != nil {
			return nil, err
		}
	}
	time.Sleep(o.warmUp)
	fmt.Fprintln(os.Stderr, "measuring")
	phase.Store(measuring)
	started, used := time.Now(), cpuTime()
	time.Sleep(o.duration)
	phase.Store(done)
	elapsed := time.Since(started)
	used = cpuTime() - used
	fmt.Fprintln(os.Stderr, "measured")
	running.Wait()
	r := summarise(o, workers, elapsed)
	r.CPUSeconds = used.Seconds()
	return r, nil
}

// sockets that are open at a time.
func (o *options) sockets() int {
	switch o.operation {
	case operationRebalance:
		return o.members
	case operationConsumerRebalance, operationConsumerHeartbeat, operationConsumerAssembly:
		return o.connections + max(o.connections, socketsOfAllGroups)
	}
	return o.connections
}

// rebalances: whether a step is one of a whole group.
func (o *options) rebalances() bool {
	return o.operation == operationRebalance || o.operation == operationConsumerRebalance
}

// cpuTime is the user and system time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// allowFiles raises the limit of open files to what the connections need, as far as the hard limit goes.
func allowFiles(needed uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Cur >= needed {
		return nil
	}
	if limit.Max < needed {
		return fmt.Errorf("%d open files needed, the hard limit is %d: raise it (ulimit -Hn)", needed, limit.Max)
	}
	limit.Cur = needed
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// run connects to the group's coordinator and sends requests until the phase is done. It reports once on ready: nil when the
// operation has begun, or why it could not.
func (w *worker) run(ready chan<- error) {
	c, err := w.connect()
	ready <- err
	if err != nil {
		return
	}
	defer func() { c.Close() }()
	w.repeat(func() (bool, error) {
		body, err := c.call(w.operation.request())
		if err != nil {
			return true, err
		}
		return false, w.operation.check(body)
	})
}

// rebalance does the same with a group that has several members.
func (w *worker) rebalance(ready chan<- error, group members) {
	err := w.retry(group.group(), func() error {
		address, err := w.coordinator(group.group())
		if err != nil {
			return err
		}
		return group.begin(address)
	})
	ready <- err
	defer func() { _ = group.end() }()
	if err == nil {
		w.repeat(func() (bool, error) {
			err := group.step()
			return err != nil, err
		})
	}
}

// members of a group that rebalances.
type members interface {
	group() string
	// begin connects them and has them join, at the coordinator of the group
	begin(address string) error
	step() error
	end() error
}

// repeat does the step until the phase is done, or until a step says that nothing more can come of it.
func (w *worker) repeat(step func() (broken bool, err error)) {
	pace := newPace(w.options)
	for {
		due := pace.wait()
		phase := w.phase.Load()
		if phase == done {
			return
		}
		broken, err := step()
		elapsed := time.Since(due)
		// a request counts where it was sent: one that the warm-up sent does not, even when it is answered later
		switch {
		case err != nil && (phase == measuring || broken): // one that ends here is missed in what is measured
			w.errors[err.Error()]++
		case err == nil && phase == measuring:
			w.latencies = append(w.latencies, elapsed)
		}
		if broken {
			return
		}
	}
}

// pace says when a connection's next request is due. A request that is late counts from when it was due: a server that
// stops answering for a second delays all that were due meanwhile.
type pace struct {
	interval time.Duration
	next     time.Time
}

func newPace(o *options) *pace {
	if o.rate <= 0 {
		return &pace{}
	}
	interval := time.Duration(float64(o.connections) / o.rate * float64(time.Second))
	return &pace{interval, time.Now().Add(time.Duration(rand.Int64N(int64(interval) + 1)))}
}

func (p *pace) wait() time.Time {
	if p.interval == 0 {
		return time.Now()
	}
	due := p.next
	p.next = due.Add(p.interval)
	time.Sleep(time.Until(due))
	return due
}

// connect finds the group's coordinator and begins the operation.
func (w *worker) connect() (c *connection, err error) {
	err = w.retry(w.operation.group(), func() error {
		c, err = w.tryConnect()
		return err
	})
	return c, err
}

// retry while the coordinator is not available yet.
func (w *worker) retry(group string, try func() error) error {
	deadline := time.Now().Add(w.options.setUpTime)
	for {
		err := try()
		if err == nil {
			return nil
		}
		var code kafkaError
		var owners *ownershipError
		if errors.As(err, &owners) || (errors.As(err, &code) && !code.retriable()) || time.Now().After(deadline) {
			return inGroup(group, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// inGroup says which group an error is of, unless it does so itself.
func inGroup(group string, err error) error {
	var owners *ownershipError
	if err == nil || errors.As(err, &owners) {
		return err
	}
	return fmt.Errorf("group %s: %w", group, err)
}

// coordinator gives the address of the group's.
func (w *worker) coordinator(group string) (string, error) {
	bootstrap, err := dial(w.options.bootstrap, w.options.login, w.options.deadline)
	if err != nil {
		return "", err
	}
	defer bootstrap.Close()
	return bootstrap.findCoordinator(group)
}

func (w *worker) tryConnect() (*connection, error) {
	address, err := w.coordinator(w.operation.group())
	if err != nil {
		return nil, err
	}
	c, err := dial(address, w.options.login, w.options.deadline)
	if err != nil {
		return nil, err
	}
	if err := w.operation.begin(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func summarise(o *options, workers []*worker, elapsed time.Duration) *result {
	r := &result{Connections: o.connections, Partitions: o.partitions, Operation: o.operation, Seconds: elapsed.Seconds(), ErrorKinds: map[string]int{}}
	var all []time.Duration
	for _, w := range workers {
		all = append(all, w.latencies...)
		for kind, count := range w.errors {
			r.ErrorKinds[kind] += count
			r.Errors += count
		}
	}
	slices.Sort(all)
	r.Commits = len(all)
	r.CommitsPerSecond = float64(len(all)) / elapsed.Seconds()
	r.P50, r.P99, r.P999 = percentile(all, 0.5), percentile(all, 0.99), percentile(all, 0.999)
	if len(all) > 0 {
		r.Max = milliseconds(all[len(all)-1])
	}
	return r
}

// percentile of sorted values by nearest rank; 0 of none.
func percentile(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return milliseconds(sorted[max(int(math.Ceil(share*float64(len(sorted))))-1, 0)])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
