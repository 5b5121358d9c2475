// SPDX-License-Identifier: Apache-2.0
// The macros that headers of systems, toolkits and boards leave behind, function-like where theirs are. Whatever a name
// stands for over there, here it is a character that no C++ program may contain, so that one use of it is an error.
#pragma once

// Complex.h, sys/sysmacros.h, stdnoreturn.h, termios.h, ioctl headers and the names gnu++ itself defines. clang's
// stdnoreturn.h gives C++ the word too.
#undef I
#define I @
#define imaginary @
#define _Complex_I @
#undef noreturn
#define noreturn @
#undef unix
#define unix @
#undef linux
#define linux @
#define B0 @
#define B50 @
#define B75 @
#define B110 @
#define B300 @
#define ECHO @
#define ECHOE @
#define ECHOK @
#define NL0 @
#define NL1 @
#define CR0 @
#define CR1 @
#define CR2 @
#define CR3 @
#define TAB0 @
#define TAB1 @
#define VT0 @
#define VT1 @
#define FF0 @
#define FF1 @
#define PAGE_SIZE @
#define NAME_MAX @
#define OVERFLOW @
#define UNDERFLOW @
#define DOMAIN @
#define SING @
#define PLOSS @
#define TLOSS @
#undef major
#define major(dev) @
#undef minor
#define minor(dev) @
#undef makedev
#define makedev(maj, min) @
#define howmany(x, y) @
#define roundup(x, y) @
#define powerof2(x) @
#define MIN(a, b) @
#define MAX(a, b) @
#define isset(a, i) @
#define setbit(a, i) @
#define clrbit(a, i) @

// Strings of old BSD and System V, and X11's Xlibint.h.
#define st_atime @
#define st_mtime @
#define st_ctime @
#define sa_handler @
#define sa_sigaction @
#define si_pid @
#define si_value @
#define s6_addr @
#define h_addr @
#define sv_onstack @
#define index(s, c) @
#define rindex(s, c) @
#define bcopy(from, to, n) @
#define bzero(at, n) @

// Windows.h and what it brings: rpcndr.h, dlgs.h, winuser.h, wingdi.h.
#define near @
#define far @
#define small @
#define hyper @
#define interface @
#define pascal @
#define cdecl @
#define boolean @
#define IN @
#define OUT @
#define OPTIONAL @
#define NEAR @
#define FAR @
#define CONST @
#define VOID @
#define ERROR @
#define DELETE @
#define INFINITE @
#define IGNORE @
#define ABSOLUTE @
#define RELATIVE @
#define TRANSPARENT @
#define OPAQUE @
#define ALTERNATE @
#define WINDING @
#define DIFFERENCE @
#define STRICT @
#define TRUE @
#define FALSE @
#define NULLREGION @
#define SIMPLEREGION @
#define NO_ERROR @
#define PURE @
#define THIS @
#define THIS_ @
#define MAX_PATH @
#define rad1 @
#define rad2 @
#define rad3 @
#define chx1 @
#define chx2 @
#define psh1 @
#define psh2 @
#define grp1 @
#define grp2 @
#define frm1 @
#define frm2 @
#define ico1 @
#define cmb1 @
#define GetMessage @
#define CreateWindow @
#define SendMessage @
#define GetObject @
#define GetClassName @
#define DrawText @
#define LoadString @
#define min(a, b) @
#define max(a, b) @
#define TEXT(quote) @
#define Yield() @
#define RGB(r, g, b) @
#define LOBYTE(w) @
#define HIBYTE(w) @
#define MAKEWORD(a, b) @
#define UNREFERENCED_PARAMETER(p) @

// Qt without QT_NO_KEYWORDS.
#define emit @
#define slots @
#define signals @
#define Q_OBJECT @
#define Q_GADGET @
#define Q_SIGNAL @
#define Q_SLOT @
#define Q_EMIT @
#define Q_SLOTS @
#define Q_SIGNALS @
#define Q_FOREVER @
#define Q_INVOKABLE @
#define forever @
#define foreach(variable, container) @
#define Q_FOREACH(variable, container) @
#define Q_ASSERT(cond) @
#define Q_UNUSED(x) @
#define Q_ENUM(x) @
#define SIGNAL(a) @
#define SLOT(a) @
#define METHOD(a) @

// X11's X.h, Xlib.h and Xutil.h.
#define None @
#define Bool @
#define Status @
#define True @
#define False @
#define Always @
#define Success @
#define Above @
#define Below @
#define Complex @
#define Convex @
#define Nonconvex @
#define Opposite @
#define Expose @
#define FocusIn @
#define FocusOut @
#define KeyPress @
#define KeyRelease @
#define ButtonPress @
#define MotionNotify @
#define CurrentTime @
#define GrayScale @
#define TrueColor @
#define DirectColor @
#define Unsorted @
#define YSorted @
#define ControlMask @
#define ShiftMask @
#define LockMask @
#define Button1 @
#define Button2 @
#define AnyKey @
#define BadValue @
#define NoValue @
#define XValue @
#define YValue @
#define WidthValue @
#define AllValues @
#define RectangleIn @
#define RectangleOut @
#define InputOnly @
#define CursorShape @
#define TileShape @
#define PointerRoot @
#define ClipByChildren @
#define LSBFirst @
#define MSBFirst @
#define XNegative @
#define YNegative @
#define QueuedAlready @
#define ParentRelative @
#define CopyFromParent @
#define ScreenOfDisplay(dpy, scr) @
#define DefaultScreen(dpy) @
#define XDestroyImage(ximage) @
#define XStringToContext(string) @
#define Data(dpy, data, len) @
#define Max(a, b) @
#define Min(a, b) @

// Arduino.h, binary.h and the pins of its boards, ESP and AVR headers.
#define PI @
#define HALF_PI @
#define TWO_PI @
#define EULER @
#define HIGH @
#define LOW @
#define INPUT @
#define OUTPUT @
#define INPUT_PULLUP @
#define SERIAL @
#define DISPLAY @
#define DEFAULT @
#define EXTERNAL @
#define INTERNAL @
#define CHANGE @
#define FALLING @
#define RISING @
#define LSBFIRST @
#define MSBFIRST @
#define DEC @
#define HEX @
#define OCT @
#define BIN @
#define SS @
#define SP @
#define SCK @
#define MISO @
#define MOSI @
#define SDA @
#define SCL @
#define A0 @
#define A1 @
#define A2 @
#define A3 @
#define A4 @
#define A5 @
#define A6 @
#define A7 @
#define D0 @
#define D1 @
#define T0 @
#define T1 @
#define T2 @
#define S0 @
#define S1 @
#define S2 @
#define R0 @
#define R1 @
#define R2 @
#define B00 @
#define B01 @
#define B1 @
#define B10 @
#define B11 @
#define B000 @
#define B100 @
#define PORTA @
#define PORTB @
#define DDRB @
#define PINB @
#define abs(x) @
#define round(x) @
#define constrain(x, low, high) @
#define radians(deg) @
#define degrees(rad) @
#define sq(x) @
#define bit(b) @
#define word(...) @
#define F(text) @
#define interrupts() @
#define noInterrupts() @
#define lowByte(w) @
#define highByte(w) @
#define bitRead(value, bit) @
#define bitSet(value, bit) @
#define bitClear(value, bit) @
#define bitToggle(value, bit) @
#define bitWrite(value, bit, bitvalue) @
#define _BV(bit) @

// MacOS: AssertMacros.h before 10.15's prefixes, MacTypes.h and Objective-C.
#define nil @
#define Nil @
#define YES @
#define NO @
#define IBOutlet @
#define IBAction @
#define check(assertion) @
#define check_noerr(error) @
#define check_string(assertion, message) @
#define ncheck(assertion) @
#define verify(assertion) @
#define verify_noerr(error) @
#define verify_action(assertion, action) @
#define verify_string(assertion, message) @
#define nverify(assertion) @
#define require(assertion, label) @
#define require_quiet(assertion, label) @
#define require_action(assertion, label, action) @
#define require_action_quiet(assertion, label, action) @
#define require_noerr(error, label) @
#define require_noerr_quiet(error, label) @
#define require_noerr_action(error, label, action) @
#define require_string(assertion, label, message) @
#define require_action_string(assertion, label, action, message) @
#define nrequire(assertion, label) @

// Logging, tests and databases: glog, doctest, Catch, gtest, PostgreSQL, Unreal, gettext, FreeBSD, the Linux tools.
#define INFO @
#define WARNING @
#define FATAL @
#define NOTICE @
#define DEBUG @
#define TRACE @
#define PANIC @
#define CHECK(x) @
#define CHECK_EQ(a, b) @
#define DCHECK(x) @
#define REQUIRE(x) @
#define EXPECT_EQ(a, b) @
#define FAIL() @
#define LOG(severity) @
#define VLOG(n) @
#define TEST(suite, name) @
#define SECTION(name) @
#define Assert(x) @
#define Abs(x) @
#define Trap(condition, name) @
#define lengthof(array) @
#define likely(x) @
#define unlikely(x) @
#define ensure(x) @
#define checkf(x, format) @
#define _(text) @
#define N_(text) @
#define gettext_noop(x) @
#define container_of(p, type, member) @
#define ARRAY_SIZE(x) @
#define swap(a, b) @

// Newlib's ctype.h, as BSD's libraries spell it, and Python's and NumPy's short names.
#define _U @
#define _L @
#define _N @
#define _S @
#define _P @
#define _C @
#define _X @
#define _B @
#define CO_NESTED @
#define T_INT @
#define T_FLOAT @
#define T_DOUBLE @
#define READONLY @
#define RO @
#define RESTRICTED @
#define NPY_TRUE @
#define Py_MIN(x, y) @
#define Py_MAX(x, y) @
#define Py_ABS(x) @
