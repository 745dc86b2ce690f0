// kubebox holds the programs of a Kubernetes control plane in one binary, all
// built from the unmodified upstream modules. One binary links, loads and
// caches once what five would repeat.
//
//	kubebox kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy | kubectl  ARGS...
//	kubebox etcd --dir DIR
//	kubebox pki --dir DIR --address IP --service-cidr CIDR
//
// A link named like a program works too. Starting, watching and stopping the
// components is the business of the world around it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// applets make a command only when it is asked for: the API server's
// constructor installs a signal handler.
var applets = map[string]func() int{
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kubectl":                 func() int { return runKubectl(kubectl.NewDefaultKubectlCommand()) },
	"etcd":                    func() int { return report("etcd", runEtcd(os.Args[1:])) },
	"pki":                     func() int { return report("pki", runPKI(os.Args[1:])) },
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if applets[name] == nil && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	applet := applets[name]
	if applet == nil {
		fmt.Fprintln(os.Stderr, "usage: kubebox etcd | kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy | kubectl | pki  ARGS...")
		os.Exit(2)
	}
	// The upstream commands read os.Args themselves.
	os.Args = append([]string{name}, args...)
	os.Exit(applet())
}

// runKubectl prints errors as kubectl itself does, without the usage text.
func runKubectl(cmd *cobra.Command) int {
	return report("", cli.RunNoErrOutput(cmd))
}

func report(name string, err error) int {
	if err == nil {
		return 0
	}
	if name != "" {
		name += ": "
	}
	fmt.Fprintf(os.Stderr, "%serror: %v\n", name, err)
	return 1
}
