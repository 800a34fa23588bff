import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;

/** Fills a heap of about `data` bytes: a map of arrays with lookups and updates, and lists and strings. */
public final class Heap {
    public static void main(String[] words) {
        long data = Long.parseLong(words[0]);
        // An entry takes about 384 bytes: 40 longs, the key, the node, and its slot of the table.
        int entries = (int) (data * 3 / 4 / 384);
        Random random = new Random(11);
        HashMap<Integer, long[]> map = new HashMap<>();
        for (int i = 0; i < entries; i++) {
            long[] value = new long[40];
            for (int j = 0; j < value.length; j++) {
                value[j] = i * 31L + j;
            }
            map.put(i, value);
        }
        System.out.println("entries " + map.size());
        long sum = 0;
        for (int i = 0; i < entries / 8; i++) {
            // Most of the accesses go to a twentieth of the entries.
            int key = random.nextInt(10) < 9 ? random.nextInt(entries / 20) : random.nextInt(entries);
            long[] value = map.get(key);
            sum = sum * 31 + value[i % value.length];
            value[i % value.length] = sum;
        }
        System.out.println("looked up " + sum);
        for (int i = 0; i < entries / 64; i++) {
            map.put(random.nextInt(entries), new long[] {i, sum});
        }
        List<String> strings = new ArrayList<>();
        for (int i = 0; strings.size() * 160L < data / 4; i++) {
            strings.add("a line of text with the number " + i * 2654435761L);
        }
        sum = 0;
        for (String string : strings) {
            sum = sum * 31 + string.hashCode();
        }
        System.out.println("strings " + strings.size() + " " + sum);
        sum = 0;
        for (long[] value : map.values()) {
            for (long number : value) {
                sum = sum * 31 + number;
            }
        }
        System.out.println("all " + sum);
    }
}
