--- The part of the Linux system call interface that softmoon needs: declarations, constants, clocks, errors.
local ffi = require "ffi"

ffi.cdef[[
typedef int32_t pid_t;
struct softmoon_timespec { int64_t tv_sec; int64_t tv_nsec; };
struct softmoon_pollfd { int fd; short events; short revents; };
struct softmoon_sockaddr_ll {
	uint16_t sll_family; uint16_t sll_protocol; int32_t sll_ifindex;
	uint16_t sll_hatype; uint8_t sll_pkttype; uint8_t sll_halen; uint8_t sll_addr[8];
};
struct softmoon_ifreq {
	char ifr_name[16];
	union { int32_t number; int16_t flags; struct { uint16_t family; uint8_t address[14]; } hwaddr; uint8_t pad[24]; };
};
struct softmoon_packet_mreq { int32_t mr_ifindex; uint16_t mr_type; uint16_t mr_alen; uint8_t mr_address[8]; };
struct softmoon_packet_stats { uint32_t tp_packets; uint32_t tp_drops; };
struct softmoon_ring_request { uint32_t tp_block_size, tp_block_nr, tp_frame_size, tp_frame_nr; };
struct softmoon_slot {
	volatile uint32_t tp_status; uint32_t tp_len, tp_snaplen; uint16_t tp_mac, tp_net;
	uint32_t tp_sec, tp_nsec; uint16_t tp_vlan_tci, tp_vlan_tpid; uint8_t tp_padding[4];
};
struct softmoon_bpf_insn { uint16_t code; uint8_t jt, jf; uint32_t k; };
struct softmoon_bpf_program { uint16_t len; struct softmoon_bpf_insn *filter; };
struct softmoon_sigset { uint64_t words[16]; };

int clock_gettime(int clock, struct softmoon_timespec *ts);
int clock_nanosleep(int clock, int flags, const struct softmoon_timespec *request, struct softmoon_timespec *rest);
int socket(int domain, int type, int protocol);
int bind(int fd, const void *address, uint32_t length);
int setsockopt(int fd, int level, int name, const void *value, uint32_t length);
int getsockopt(int fd, int level, int name, void *value, uint32_t *length);
int ioctl(int fd, unsigned long request, ...);
int ppoll(struct softmoon_pollfd *fds, unsigned long n, const struct softmoon_timespec *timeout, const void *mask);
ptrdiff_t send(int fd, const void *data, size_t length, int flags);
ptrdiff_t recv(int fd, void *data, size_t length, int flags);
int socketpair(int domain, int type, int protocol, int fds[2]);
void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset);
int memfd_create(const char *name, unsigned int flags);
int ftruncate(int fd, int64_t length);
ptrdiff_t write(int fd, const void *data, size_t length);
ptrdiff_t pread(int fd, void *data, size_t length, int64_t offset);
int close(int fd);
pid_t fork(void);
pid_t getpid(void);
pid_t getppid(void);
int execv(const char *path, char *const argv[]);
pid_t waitpid(pid_t pid, int *status, int options);
int kill(pid_t pid, int signal);
int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
int sigemptyset(struct softmoon_sigset *set);
int sigaddset(struct softmoon_sigset *set, int signal);
int sigprocmask(int how, const struct softmoon_sigset *set, struct softmoon_sigset *old);
int sigwaitinfo(const struct softmoon_sigset *set, void *info);
long sysconf(int name);
int setenv(const char *name, const char *value, int overwrite);
char *strerror(int number);
void abort(void);
void _exit(int status);
]]

local C = ffi.C

local kernel = {
	SIGINT = 2, SIGKILL = 9, SIGTERM = 15, SIGCHLD = 17,
	EINTR = 4, EAGAIN = 11, ENOBUFS = 105,
	POLLIN = 1,
	MSG_DONTWAIT = 0x40,
}

local CLOCK_REALTIME, CLOCK_MONOTONIC = 0, 1
local timespec = ffi.new("struct softmoon_timespec")

local function readClock(clock)
	C.clock_gettime(clock, timespec)
	-- exact in a double for 104 days of uptime; the whole and the part are added last to keep nanoseconds
	return tonumber(timespec.tv_sec) * 1e9 + tonumber(timespec.tv_nsec)
end

--- Nanoseconds of the monotonic clock, as a number.
function kernel.nanoseconds()
	return readClock(CLOCK_MONOTONIC)
end

--- Nanoseconds of the monotonic clock, as uint64_t: what softmoon calls a cycle.
function kernel.cycles()
	C.clock_gettime(CLOCK_MONOTONIC, timespec)
	return ffi.cast("uint64_t", timespec.tv_sec * 1000000000LL + timespec.tv_nsec)
end

local wall = ffi.new("struct softmoon_timespec")

--- Seconds of the wall clock.
function kernel.wallSeconds()
	C.clock_gettime(CLOCK_REALTIME, wall)
	return tonumber(wall.tv_sec) + tonumber(wall.tv_nsec) * 1e-9
end

-- A comparison of the two clocks that took no longer is as good as exact. It takes 80 ns in compiled code, 6 us before the
-- code is compiled, and any time when this process is off the CPU in the middle of it.
local GOOD_COMPARISON_NS = 200

local baseSecond = os.time()
local ahead -- nanoseconds of the wall clock since baseSecond minus those of the monotonic clock

-- Returns a value for `ahead`, and how long the comparison took: it is wrong by at most half of that.
local function compareClocks()
	local before = readClock(CLOCK_MONOTONIC)
	C.clock_gettime(CLOCK_REALTIME, wall)
	local took = readClock(CLOCK_MONOTONIC) - before
	return (tonumber(wall.tv_sec) - baseSecond) * 1e9 + tonumber(wall.tv_nsec) - (before + took / 2), took
end

local function bestComparison()
	local best, value = math.huge, 0
	for _ = 1, 300 do
		local compared, took = compareClocks()
		if took < best then
			best, value = took, compared
		end
	end
	return value
end

--- The monotonic time, in nanoseconds, of a moment that the kernel gave in wall-clock time. The clocks are compared anew
-- for every moment, so that a step of the wall clock does no harm.
function kernel.monotonicOf(seconds, nanoseconds)
	local compared, took = compareClocks()
	if ahead and took <= GOOD_COMPARISON_NS then
		ahead = compared
	elseif not ahead or math.abs(compared - ahead) > took then
		ahead = bestComparison()
	end
	return (seconds - baseSecond) * 1e9 + nanoseconds - ahead
end

--- Seconds of the monotonic clock.
function kernel.seconds()
	return readClock(CLOCK_MONOTONIC) * 1e-9
end

local request = ffi.new("struct softmoon_timespec")

--- Give the CPU away for so many nanoseconds. A signal may end it early.
function kernel.sleep(ns)
	if ns <= 0 then return end
	request.tv_sec = math.floor(ns / 1e9)
	request.tv_nsec = ns % 1e9
	C.clock_nanosleep(CLOCK_MONOTONIC, 0, request, nil)
end

local pollfd = ffi.new("struct softmoon_pollfd[1]")

--- Wait until the socket is ready for `events`, at most so many nanoseconds. An error of the socket (its interface went
-- down) ends the wait and is cleared, so that it does not end the following ones.
function kernel.wait(fd, events, ns)
	pollfd[0].fd, pollfd[0].events, pollfd[0].revents = fd, events, 0
	request.tv_sec = math.floor(ns / 1e9)
	request.tv_nsec = ns % 1e9
	C.ppoll(pollfd, 1, request, nil)
	local POLLERR, SOL_SOCKET, SO_ERROR = 8, 1, 4
	if bit.band(pollfd[0].revents, POLLERR) ~= 0 then
		C.getsockopt(fd, SOL_SOCKET, SO_ERROR, ffi.new("int[1]"), ffi.new("uint32_t[1]", 4))
	end
end

function kernel.errorText(number)
	return ffi.string(C.strerror(number or ffi.errno()))
end

--- Raise with the error text of the last call when it failed. `level` 0: the message is for users, not a place in the code.
function kernel.check(result, what, ...)
	if tonumber(result) < 0 then
		local number = ffi.errno()
		error(("softmoon: %s: %s"):format(what:format(...), kernel.errorText(number)), 0)
	end
	return result
end

--- Whether this machine has but one CPU, where polling keeps away what is polled for.
function kernel.hasOneCpu()
	local SC_NPROCESSORS_ONLN = 84
	return C.sysconf(SC_NPROCESSORS_ONLN) == 1
end

--- The default slack of 50 us would make every short sleep late.
function kernel.sharpenSleep()
	local PR_SET_TIMERSLACK = 29
	C.prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
end

return kernel
