package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const etcdStartDeadline = 30 * time.Second

// runEtcd serves one member until it is told to stop.
func runEtcd(args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dir := flags.String("dir", "", "data directory")
	client := flags.String("client-url", "http://127.0.0.1:2379", "where clients connect")
	peer := flags.String("peer-url", "http://127.0.0.1:2380", "where members would connect")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := etcdConfig(*dir, *client, *peer)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	member, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer member.Close()
	select {
	case <-member.Server.ReadyNotify():
	case err := <-member.Err():
		return err
	case <-ctx.Done():
		return nil
	case <-time.After(etcdStartDeadline):
		return fmt.Errorf("not ready after %s", etcdStartDeadline)
	}
	select {
	case err := <-member.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

func etcdConfig(dir, client, peer string) (*embed.Config, error) {
	clientURL, err := url.Parse(client)
	if err != nil {
		return nil, err
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Dir = dir
	c.Name = "kubebox"
	c.ListenClientUrls = []url.URL{*clientURL}
	c.AdvertiseClientUrls = []url.URL{*clientURL}
	c.ListenPeerUrls = []url.URL{*peerURL}
	c.AdvertisePeerUrls = []url.URL{*peerURL}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.LogLevel = "error"
	c.LogOutputs = []string{"stderr"}
	// The data never outlives the world, so it need not reach a disk.
	c.UnsafeNoFsync = true
	// The only member may elect itself at once.
	c.TickMs = 10
	c.ElectionMs = 100
	// The zero value logs every request.
	c.WarningUnaryRequestDuration = time.Second
	return c, nil
}
