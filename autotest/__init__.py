"""autotest measures virtual network interfaces: load, latency and loss over a matrix of set-ups.

Glossary, used in code, output and documentation alike:

testbed        host, guests and loadgen together, as ``autotest.conf`` describes them
host           the machine that runs the guests; with machine type ``host`` itself the device under test
guest          a QEMU virtual machine on the host
loadgen        the machine that sends the load and takes the latency samples
DuT            device under test: the machine (host or guest) that reflects the load
reflector      what swaps the MAC addresses and sends every test frame back: a MoonGen or an XDP program
frame size     bytes without the 4-byte CRC: 60 is the 64-byte minimum frame
offered load   frames per second that were asked for, in kpps
achieved rate  frames per second that were really sent, in kpps
loss           (sent - received) / sent, from frame totals
test case      one leaf of the tree: one full combination of parameters
repetition     one execution of a test case, numbered from 0
trial          what one repetition produced: its files, its figures, its verdict
verdict        whether a trial may be merged: ``valid``, or the reason why not
stage          one layer of the tree: it owns one set-up step and its undoing
lab            the built-in testbed: namespaces, veth and QEMU on one machine
"""

__version__ = "0.1.0"
