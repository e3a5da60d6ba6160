package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// whileTheCallerLooks is the pause beside a mark on standard error, so that what is not measured uses the server at another
// time.
const whileTheCallerLooks = 100 * time.Millisecond

// assemblies measures the way of groups of the consumer protocol from nothing to an assignment that is whole and stands
// still. A sample is of as many groups as there are connections, all at the same time. Each has groups of its own, and their
// members leave before the next. The first sample is not measured: until it has ended, coordinators may not be available.
func assemblies(o *options) (*result, error) {
	warming := groupsOfSample(o, 0)
	_, err := eachGroup(warming, func(g *consumers) error { return atItsCoordinator(g, g.begin) })
	_, _ = eachGroup(warming, (*consumers).end)
	if err != nil {
		return nil, err
	}
	total := &worker{}
	var elapsed, used time.Duration
	var requests int64
	for number := range o.samples {
		groups := groupsOfSample(o, number+1)
		if _, err := eachGroup(groups, func(g *consumers) error { return atItsCoordinator(g, g.connect) }); err != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "measuring")
		time.Sleep(whileTheCallerLooks)
		started, before := time.Now(), cpuTime()
		took, err := eachGroup(groups, func(g *consumers) error { return inGroup(g.name, g.assemble()) })
		elapsed += time.Since(started)
		used += cpuTime() - before
		fmt.Fprintln(os.Stderr, "measured")
		time.Sleep(whileTheCallerLooks)
		_, _ = eachGroup(groups, (*consumers).end)
		if err != nil {
			return nil, err
		}
		total.latencies = append(total.latencies, took...)
		for _, group := range groups {
			requests += group.requests.Load()
		}
	}
	r := summarise(o, []*worker{total}, elapsed)
	r.CPUSeconds = used.Seconds()
	r.RequestsEach = float64(requests) / float64(r.Commits)
	return r, nil
}

// groupsOfSample have names that no other run gives.
func groupsOfSample(o *options, sample int) []*consumers {
	named := *o
	named.groupPrefix = fmt.Sprintf("%s-%08x-%d", o.groupPrefix, rand.Uint32(), sample)
	groups := make([]*consumers, o.connections)
	for number := range groups {
		groups[number] = newConsumers(&named, number)
	}
	return groups
}

// atItsCoordinator does it with the address of the group's coordinator, again while that is not available.
func atItsCoordinator(g *consumers, do func(address string) error) error {
	w := &worker{options: g.options}
	return w.retry(g.name, func() error {
		address, err := w.coordinator(g.name)
		if err != nil {
			return err
		}
		return do(address)
	})
}

// eachGroup does it at the same time; how long each took, and the first error.
func eachGroup(groups []*consumers, do func(*consumers) error) ([]time.Duration, error) {
	took, failures := make([]time.Duration, len(groups)), make([]error, len(groups))
	var running sync.WaitGroup
	for number, group := range groups {
		running.Add(1)
		go func() {
			defer running.Done()
			started := time.Now()
			failures[number] = do(group)
			took[number] = time.Since(started)
		}()
	}
	running.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}
